"""The policies start every job exactly when the definition says."""

from __future__ import annotations

import random

import pytest

from qloom.lab.load.engine import Engine
from qloom.lab.schedulers import POLICIES, make_policy
from qloom.lab.schedulers.policy import Decision, Policy
from qloom.lab.schedulers.reservations import Conservative
from qloom.lab.schedulers.state import FOREVER_US, Entry, State
from tests.load import brute_force
from tests.load.brute_force import Job

ONE = {"batch": 16}
SEVERAL = {"batch": 12, "gpu": 6, "qpu": 4}
WANTED = [("batch",), ("batch",), ("batch",), ("gpu",), ("qpu",), ("batch", "qpu"), ("gpu", "qpu")]


def random_trace(seed: int, capacity: dict[str, int]) -> list[Job]:
    """Few sizes and limits, so that buckets hold several jobs, and enough load that there is a queue."""
    rng = random.Random(seed)
    jobs, at = [], 0
    for number in range(rng.randint(5, 35)):
        at += rng.choice([0, 0, 1, 2, 5])
        limit = rng.choice([2, 3, 5, 8, 13, 20])
        wanted = ("batch",) if len(capacity) == 1 else rng.choice(WANTED)
        needs = {name: rng.choice([1, 2, 3, capacity[name] // 2, capacity[name]]) for name in wanted}
        jobs.append(Job(f"j{number}", at, rng.randint(1, limit), limit, needs))
    return jobs


def engine_starts(policy: Policy, capacity: dict[str, int], jobs: list[Job]) -> dict[str, int]:
    """When each job starts, in seconds."""
    state = State(list(capacity.items()))
    arrivals = []
    for job in jobs:
        line = state.line(tuple(job.needs))
        entry = Entry(job.name, line, tuple(job.needs.values()), job.limit * 10**6, job.run * 10**6)
        arrivals.append((job.arrival * 10**6, entry))
    engine = Engine(state, policy, "tested")
    coming = list(arrivals)
    while coming or engine.next_us != FOREVER_US:
        now_us = min([engine.next_us, *(at_us for at_us, _entry in coming[:1])])
        engine.advance(now_us)
        while coming and coming[0][0] == now_us:
            engine.submit(coming.pop(0)[1])
        engine.settle()
    assert not state.running
    assert not state.waiting
    assert all(resource.free == resource.capacity and not resource.ends for resource in state.resources.values())
    return {entry.id: entry.start_us // 10**6 for _at_us, entry in arrivals}


@pytest.mark.parametrize("name", list(POLICIES))
@pytest.mark.parametrize("capacity", [ONE, SEVERAL], ids=["one partition", "partitions and gres"])
@pytest.mark.parametrize(
    "seeds", [range(100), pytest.param(range(100, 400), marks=pytest.mark.slow)], ids=["100 traces", "300 more"]
)
def test_every_job_starts_when_a_brute_force_scheduler_starts_it(name, capacity, seeds):
    for seed in seeds:
        jobs = random_trace(seed, capacity)
        assert engine_starts(make_policy(name), capacity, jobs) == brute_force.schedule(name, capacity, jobs), seed


@pytest.mark.parametrize("name", ["easy", "conservative", "replan"])
def test_a_pass_looks_no_deeper_than_it_is_told(name):
    for seed in range(100):
        jobs = random_trace(seed, ONE)
        found = engine_starts(make_policy(name, depth=4), ONE, jobs)
        assert found == brute_force.schedule(name, ONE, jobs, depth=4), seed


class Promising(Conservative):
    """Remembers when each job was first promised to start, at the latest."""

    def __init__(self, **options: float) -> None:
        super().__init__(**options)
        self.first_promise_us: dict[str | int, int] = {}

    def decide(self, state: State) -> Decision:
        decided = super().decide(state)
        for entry, at_us in self.reserved_us.items():
            self.first_promise_us.setdefault(entry.id, at_us)
        return decided


@pytest.mark.parametrize("options", [{}, {"interval_s": 7}, {"depth": 3}, {"interval_s": 7, "depth": 3}], ids=str)
@pytest.mark.parametrize("capacity", [ONE, SEVERAL], ids=["one partition", "partitions and gres"])
def test_under_conservative_no_job_starts_later_than_it_was_first_promised(capacity, options):
    promised = 0
    for seed in range(150):
        jobs = random_trace(seed, capacity)
        policy = Promising(**options)
        starts = engine_starts(policy, capacity, jobs)
        late = {name: at_us for name, at_us in policy.first_promise_us.items() if starts[name] * 10**6 > at_us}
        assert not late, (seed, late)
        promised += len(policy.first_promise_us)
    assert promised > 500


@pytest.mark.parametrize("capacity", [ONE, SEVERAL], ids=["one partition", "partitions and gres"])
def test_the_first_promise_is_the_earliest_place_beside_all_others(capacity):
    """Held against the table of a brute-force scheduler; the engine's starts equal its own, by the test above."""
    for seed in range(100):
        jobs = random_trace(seed, capacity)
        policy, keeper = Promising(), brute_force.Conservative()
        engine_starts(policy, capacity, jobs)
        starts = brute_force.schedule("conservative", capacity, jobs, keeper=keeper)
        waited = {name: at_us // 10**6 for name, at_us in policy.first_promise_us.items()}
        assert waited == {name: at for name, at in keeper.first_promise.items() if name in waited}
        assert all(starts[name] <= at for name, at in keeper.first_promise.items())
