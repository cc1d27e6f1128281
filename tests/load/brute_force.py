"""Schedulers written from their definitions, as slow as they like; they share no code with the package.

Time is whole seconds. A job is (name, arrival, run, limit, needs), needs a dictionary resource -> amount.
"""

from __future__ import annotations

from typing import NamedTuple


class Job(NamedTuple):
    name: str
    arrival: int
    run: int
    limit: int
    needs: dict[str, int]


class Running(NamedTuple):
    job: Job
    start: int


def available(capacity: dict[str, int], running: list[Running], at: int) -> dict[str, int]:
    """What will be free at a time if everybody takes as long as their limit says."""
    free = dict(capacity)
    for job, start in running:
        if start + job.limit > at:
            for name, amount in job.needs.items():
                free[name] -= amount
    return free


def fits(job: Job, free: dict[str, int]) -> bool:
    return all(free[name] >= amount for name, amount in job.needs.items())


def earliest(job: Job, capacity: dict[str, int], running: list[Running], now: int) -> int:
    """The first time at which a job fits, if nobody else comes."""
    at = now
    while not fits(job, available(capacity, running, at)):
        at += 1
    return at


def fcfs(capacity: dict[str, int], running: list[Running], queue: list[Job], now: int) -> list[Job]:
    """A job that cannot start blocks what it wants."""
    starts: list[Job] = []
    blocked: dict[str, bool] = {}
    for job in queue:
        holding = running + [Running(started, now) for started in starts]
        if any(name in blocked for name in job.needs) or not fits(job, available(capacity, holding, now)):
            blocked.update(dict.fromkeys(job.needs, True))
        else:
            starts.append(job)
    return starts


def easy(capacity: dict[str, int], running: list[Running], queue: list[Job], now: int) -> list[Job]:
    """A job may start if it fits, and every first-in-line can still start as early as before."""
    starts: list[Job] = []
    first_in_line: list[Job] = []
    for job in queue:
        holding = running + [Running(started, now) for started in starts]
        with_it = [*holding, Running(job, now)]
        if fits(job, available(capacity, holding, now)) and all(
            earliest(first, capacity, with_it, now) <= earliest(first, capacity, holding, now)
            for first in first_in_line
        ):
            starts.append(job)
        elif not any(name in first.needs for first in first_in_line for name in job.needs):
            first_in_line.append(job)
    return starts


def places(job: Job, free: list[dict[str, int]]) -> int:
    """The first second from which a job fits for its whole limit."""
    at = 0
    while not all(fits(job, second) for second in free[at : at + job.limit]):
        at += 1
    return at


def change(job: Job, free: list[dict[str, int]], at: int, sign: int) -> None:
    """Take a job into a table of what is free (-1), or out of it (+1)."""
    for second in free[at : at + job.limit]:
        for name, amount in job.needs.items():
            second[name] += sign * amount


def table(capacity: dict[str, int], running: list[Running], queue: list[Job], now: int) -> list[dict[str, int]]:
    """What is free in every second from now on, until everybody could have run after everybody else."""
    horizon = now + 2 * sum(job.limit for job in queue) + sum(job.limit for job, _ in running) + 1
    return [available(capacity, running, at) for at in range(now, horizon)]


def replan(capacity: dict[str, int], running: list[Running], queue: list[Job], now: int) -> list[Job]:
    """Each job in turn takes the first place where it fits throughout."""
    free = table(capacity, running, queue, now)
    starts = []
    for job in queue:
        at = places(job, free)
        change(job, free, at, -1)
        if at == 0:
            starts.append(job)
    return starts


class Conservative:
    """Reservations that only ever become earlier: one is made when a job comes, and all move up when others end."""

    def __init__(self) -> None:
        self.reserved: dict[str, int] = {}  # second in which a waiting job starts
        self.first_promise: dict[str, int] = {}

    def is_due(self, now: int) -> bool:
        return now in self.reserved.values()

    def decide(
        self, capacity: dict[str, int], running: list[Running], queue: list[Job], now: int, ended: bool
    ) -> list[Job]:
        free = table(capacity, running, queue, now)
        for job in queue:
            if job.name in self.reserved:
                change(job, free, self.reserved[job.name] - now, -1)
        for job in queue:
            if job.name in self.reserved and ended:
                change(job, free, self.reserved.pop(job.name) - now, +1)
            if job.name not in self.reserved:
                self.reserved[job.name] = now + places(job, free)
                change(job, free, self.reserved[job.name] - now, -1)
                self.first_promise.setdefault(job.name, self.reserved[job.name])
        starts = [job for job in queue if self.reserved.get(job.name) == now]
        for job in starts:
            del self.reserved[job.name]
        return starts


POLICIES = {"fcfs": fcfs, "easy": easy, "replan": replan}


def schedule(
    policy: str, capacity: dict[str, int], jobs: list[Job], depth: int = 0, keeper: Conservative | None = None
) -> dict[str, int]:
    """When each job starts, by going through time second by second."""
    to_come, queue, running = sorted(jobs, key=lambda job: job.arrival), [], []
    keeper = keeper or Conservative()
    starts: dict[str, int] = {}
    now = 0
    while to_come or queue or running:
        over = [held for held in running if held.start + held.job.run <= now]
        running = [held for held in running if held not in over]
        came = [job for job in to_come if job.arrival <= now]
        to_come = to_come[len(came) :]
        queue += came
        if over or came or keeper.is_due(now):  # a policy is asked when something happens
            seen = queue[:depth] if depth else list(queue)
            if policy == "conservative":
                chosen = keeper.decide(capacity, running, seen, now, bool(over))
            else:
                chosen = POLICIES[policy](capacity, running, seen, now)
            for job in chosen:
                starts[job.name] = now
                running.append(Running(job, now))
                queue.remove(job)
        now += 1
    return starts
