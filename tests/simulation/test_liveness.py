"""No strategy leaks a resource, deadlocks or loses a result, whatever the program, the load and the moment."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as some

from qloom.errors import QloomError
from qloom.journal.file import Event
from qloom.journal.history import read_history
from qloom.site import Overheads, Qpu, Site
from qloom.strategies import STRATEGIES
from qloom.views.accounting import account
from qloom.worlds.virtual.world import InjectedFaults
from tests.journals import as_lines
from tests.simulation import disasters
from tests.simulation.harness import simulate

HOLDS = ["", "+whole", "+share", "+task"]
NAMES = [name + hold for name in STRATEGIES for hold in HOLDS]
SECONDS = some.sampled_from([0.0, 0.1, 0.5, 1.0, 2.5, 7.0])
PATIENT = settings(
    max_examples=int(os.environ.get("QLOOM_EXAMPLES", "300")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)


def tasks(most_nodes: int = 3) -> some.SearchStrategy[list[tuple[float, int]]]:
    nodes = some.sampled_from([1, 1, 1, *range(1, most_nodes + 1)])
    return some.lists(some.tuples(SECONDS, nodes), min_size=1, max_size=4)


def steps() -> some.SearchStrategy[tuple[object, ...]]:
    inner = some.one_of(
        some.tuples(some.just("classical"), tasks(2)),
        some.tuples(some.just("quantum"), SECONDS),
        some.tuples(some.just("several"), some.lists(SECONDS, min_size=2, max_size=3)),
    )
    return some.one_of(
        some.tuples(some.just("classical"), tasks()),
        some.tuples(some.just("quantum"), SECONDS),
        some.tuples(some.just("overlap"), tasks(), SECONDS),
        some.tuples(some.just("behind"), tasks(), SECONDS),
        some.tuples(some.just("several"), some.lists(SECONDS, min_size=2, max_size=3)),
        some.tuples(some.just("block"), some.lists(inner, min_size=1, max_size=4)),
        some.tuples(some.just("speculate"), tasks(2), SECONDS),
        some.tuples(some.just("guess"), tasks(2), SECONDS),
        some.tuples(some.just("candidate"), SECONDS, SECONDS),
        some.tuples(some.just("abandon"), tasks(), SECONDS),
    )


PROGRAMS = some.lists(some.lists(steps(), min_size=1, max_size=5), min_size=1, max_size=5)
CHOSEN = some.lists(some.sampled_from(NAMES), min_size=1, max_size=4)
OVERHEAD = some.sampled_from([0.0, 0.01, 0.05, 0.3])
OVERHEADS = some.builds(
    Overheads,
    tick_s=some.sampled_from([0.0, 0.0, 0.3, 1.0]),
    grant_s=OVERHEAD,
    worker_start_s=OVERHEAD,
    grow_s=OVERHEAD,
    shrink_s=OVERHEAD,
    release_s=OVERHEAD,
    queue_call_s=OVERHEAD,
    task_s=OVERHEAD,
)
QPUS = some.sampled_from(
    [
        (Qpu(shares=2),),
        (Qpu(shares=1),),
        (Qpu(shares=3, lanes=2),),
        (Qpu(name="a", shares=2), Qpu(name="b", shares=4)),
        (Qpu(shares=2, outages_s=((1.0, 4.0), (9.0, 20.0))),),
    ]
)
SITES = some.builds(Site, nodes=some.sampled_from([3, 3, 4]), qpus=QPUS, overheads=OVERHEADS)


def require_sound(events: list[Event], lanes: int = 1) -> None:
    """A node has one holder and runs one task at a time, a QPU as many as it has lanes; busy is within held."""
    require_sound_together([events], lanes)


def require_sound_together(journals: list[list[Event]], lanes: int) -> None:
    """The same of jobs with a journal each. What was open when a driver was killed has its end in no journal."""
    histories = [read_history(events) for events in journals]
    by_resource = defaultdict(list)
    for interval in (interval for history in histories for interval in history.intervals):
        kind = {"task": "busy", "spare": "busy"}
        for resource in interval.resources:
            by_resource[kind.get(interval.kind, interval.kind), resource].append(interval)
    for (kind, _resource), intervals in by_resource.items():
        at_once = {"vqpu": 1000, "quantum": lanes}.get(kind, 1)
        intervals.sort(key=lambda interval: (interval.begin_us, interval.end_us))
        ends: list[int] = []
        for interval in intervals:
            ends = [end_us for end_us in ends if end_us > interval.begin_us]
            ends.append(interval.end_us)
            assert len(ends) <= at_once, f"{kind}: {interval} begins while {len(ends) - 1} others are there"
    for events, history in zip(journals, histories, strict=True):
        total = account(history)
        assert total.node_s_busy <= total.node_s_held + 1e-6
        assert total.qpu_s_busy <= total.qpu_s_held + 1e-6
        last = max((place for place, event in enumerate(as_lines(events)) if event["event"] == "resumed"), default=0)
        for interval in read_history([events[0], *events[max(1, last) :]]).intervals:
            assert interval.state != "open", f"still open at the end: {interval}"


def require_nothing_again(events: list[Event]) -> None:
    """Nothing that the journal has as done runs another time."""
    done: dict[tuple[str, str], bool] = {}
    for event in as_lines(events):
        if event["event"] in ("task_started", "quantum_started"):
            assert (event["job"], event["work"]) not in done, f"runs again: {event}"
        elif event["event"] in ("task_ended", "quantum_ended") and event["state"] == "done":
            done[event["job"], event["work"]] = True


@PATIENT
@given(programs=PROGRAMS, chosen=CHOSEN, site=SITES)
def test_every_program_ends_with_the_same_results_whoever_else_runs(programs, chosen, site):
    together = simulate(programs, chosen, site)
    require_sound(together.events, max(qpu.lanes for qpu in site.qpus))
    for steps, outcome in zip(programs, together.outcomes, strict=True):
        assert not isinstance(outcome, BaseException), outcome
        alone = simulate([steps], ["offload"], Site(nodes=site.nodes)).outcomes[0]
        assert outcome == alone


@PATIENT
@given(
    programs=PROGRAMS,
    chosen=CHOSEN,
    site=SITES,
    faults=some.builds(
        InjectedFaults,
        seed=some.integers(0, 1000),
        task_rate=some.sampled_from([0.0, 0.05, 0.3]),
        quantum_rate=some.sampled_from([0.0, 0.1, 0.3]),
    ),
    cancel_at_s=some.dictionaries(some.integers(0, 4), some.floats(0, 30, allow_nan=False), max_size=4),
)
def test_faults_and_cancellation_at_any_moment_leave_nothing_behind(programs, chosen, site, faults, cancel_at_s):
    note(f"faults seed: {faults.seed}")
    cancel_at_s = {job: at_s for job, at_s in cancel_at_s.items() if job < len(programs)}
    ended = simulate(programs, chosen, site, faults=faults, cancel_at_s=cancel_at_s)
    require_sound(ended.events, max(qpu.lanes for qpu in site.qpus))
    for number, outcome in enumerate(ended.outcomes):
        if isinstance(outcome, asyncio.CancelledError):
            assert number in cancel_at_s
        elif isinstance(outcome, QloomError):
            assert "injected fault" in str(outcome)


def test_whatever_is_lost_or_killed_every_job_ends_with_its_results():
    """QLOOM_EXAMPLES schedules, from QLOOM_SEED on: a node lost, a QPU fault, a driver killed, a broker restarted.

    Drivers live on a login node, in Slurm jobs, beside them or in chains; those in the way of each other hand over.
    """
    first = int(os.environ.get("QLOOM_SEED", "0"))
    hits: Counter[str] = Counter()
    for seed in range(first, first + int(os.environ.get("QLOOM_EXAMPLES", "100"))):
        schedule = disasters.draw(seed)
        try:
            ended = disasters.run(schedule)
            require_sound_together(ended.journals, max(qpu.lanes for qpu in schedule.site.qpus))
            for events in ended.journals:
                require_nothing_again(events)
            for steps, result in zip(schedule.programs, ended.results, strict=True):
                alone = simulate([steps], ["offload"], Site(nodes=schedule.site.nodes)).outcomes[0]
                assert result == alone
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        hits.update(ended.hits)
    print(f"seeds from {first} on, hits: {dict(hits)}")
    assert all(hits[what] for what in (*disasters.DISASTERS, disasters.HANDED_OVER)), hits


@pytest.mark.parametrize("seed", [155, 210723, 211128])
def test_schedules_that_once_blocked_do_so_no_more(seed, monkeypatch):
    """Spare work that set a bound back, and a node that weave kept while its own work waited for more of them."""
    drawn_from = {name: strategy for name, strategy in STRATEGIES.items() if name != "pertask"}  # it came later
    monkeypatch.setattr(disasters, "STRATEGIES", drawn_from)
    schedule = disasters.draw(seed)
    assert len(disasters.run(schedule).results) == len(schedule.programs)


def test_a_request_that_is_taken_back_at_once_stands_in_no_line():
    """Once `weave` asked for a QPU and took that back in the same instant: a line that missed it kept the place."""
    schedule = disasters.draw(401899)
    assert len(disasters.run(schedule).results) == len(schedule.programs)


def test_a_queue_that_loses_a_task_is_found_soon_and_the_task_named():
    """The tests above fail in seconds, and say who waits for what, should a restart of the broker lose something."""
    command = [sys.executable, "-m", "tests.simulation.forgetful", "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    stuck = done.stdout.splitlines()
    assert len(stuck) >= 3, "too few of these schedules have a task in the queue when the broker restarts"
    for said in stuck:
        assert re.search(r"job j\d waits for quantum task delay .* its queue does not know it", said)
