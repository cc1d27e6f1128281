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


def conservative(capacity: dict[str, int], running: list[Running], queue: list[Job], now: int) -> list[Job]:
    """A table of what is free in every second; each job in turn takes the first place where it fits throughout."""
    horizon = now + sum(job.limit for job in queue) + sum(job.limit for job, _ in running) + 1
    free = [available(capacity, running, at) for at in range(now, horizon)]
    starts = []
    for job in queue:
        at = 0
        while not all(fits(job, second) for second in free[at : at + job.limit]):
            at += 1
        for second in free[at : at + job.limit]:
            for name, amount in job.needs.items():
                second[name] -= amount
        if at == 0:
            starts.append(job)
    return starts


POLICIES = {"fcfs": fcfs, "easy": easy, "conservative": conservative}


def schedule(policy: str, capacity: dict[str, int], jobs: list[Job], depth: int = 0) -> dict[str, int]:
    """When each job starts, by going through time second by second."""
    to_come, queue, running = sorted(jobs, key=lambda job: job.arrival), [], []
    starts: dict[str, int] = {}
    now = 0
    while to_come or queue or running:
        over = [held for held in running if held.start + held.job.run <= now]
        running = [held for held in running if held not in over]
        came = [job for job in to_come if job.arrival <= now]
        to_come = to_come[len(came) :]
        queue += came
        if over or came:  # a policy is asked when something happens
            for job in POLICIES[policy](capacity, running, queue[:depth] if depth else queue, now):
                starts[job.name] = now
                running.append(Running(job, now))
                queue.remove(job)
        now += 1
    return starts
