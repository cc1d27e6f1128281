"""A workflow that submits spare work too: no result changes, nothing runs twice, and nothing is left behind."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as some

from qloom.errors import QloomError
from qloom.journal.accounting import read_history
from qloom.programs.load import Program
from qloom.runner import Plan
from qloom.site import Site
from qloom.worlds.virtual.world import Faults
from tests.simulation.harness import Simulation, interpret, simulate, simulate_plans
from tests.simulation.test_liveness import PROGRAMS, SITES, require_sound
from tests.simulation.test_weave import SOME

FEW = settings(SOME, max_examples=SOME.max_examples // 2)
OPTIONS = some.fixed_dictionaries(
    {"spare": some.just(1.0), "per_task": some.sampled_from([0.0, 1.0]), "nice": some.sampled_from([0.0, 1.0])}
)


def run(programs: list[Any], options: dict[str, float], site: Site, **more: Any) -> Simulation:
    program = Program("interpret", interpret)
    plans = [Plan(program, {"steps": steps}, "workflow", options, "virtual", site) for steps in programs]
    return simulate_plans(plans, site, **more)


@FEW
@given(programs=PROGRAMS, options=OPTIONS, site=SITES)
def test_results_are_those_of_every_other_strategy(programs, options, site):
    ended = run(programs, options, site)
    require_sound(ended.events, max(qpu.lanes for qpu in site.qpus))
    done = Counter(
        (event["job"], event["work"])
        for event in ended.events
        if event["event"] == "task_ended" and event["state"] == "done"
    )
    assert set(done.values()) <= {1}, "a task ran twice"
    for steps, outcome in zip(programs, ended.outcomes, strict=True):
        assert outcome == simulate([steps], ["offload"], Site(nodes=site.nodes)).outcomes[0]


@FEW
@given(
    programs=PROGRAMS,
    options=OPTIONS,
    site=SITES,
    seed=some.integers(0, 1000),
    cancel_at_s=some.dictionaries(some.integers(0, 4), some.floats(0, 30, allow_nan=False), max_size=3),
)
def test_faults_and_cancellation_leave_nothing_behind(programs, options, site, seed, cancel_at_s):
    note(f"faults seed: {seed}")
    cancelled = {job: at_s for job, at_s in cancel_at_s.items() if job < len(programs)}
    faults = Faults(seed, task_rate=0.1, quantum_rate=0.1)
    ended = run(programs, options, site, faults=faults, cancel_at_s=cancelled)
    require_sound(ended.events, max(qpu.lanes for qpu in site.qpus))
    for number, outcome in enumerate(ended.outcomes):
        assert not isinstance(outcome, QloomError) or "injected fault" in str(outcome)
        assert not isinstance(outcome, BaseException) or isinstance(outcome, QloomError) or number in cancelled


@pytest.mark.parametrize(("per_task", "leases"), [(1.0, 2), (0.0, 1)])
def test_spare_work_runs_in_steps_of_its_own(per_task, leases):
    steps = [("speculate", [(2.5, 1), (2.5, 1)], 7.0)]
    ended = run([steps], {"spare": 1.0, "per_task": per_task}, Site(nodes=3))
    of_nodes = [event for event in ended.events if event["event"] == "requested" and event["nodes"]]
    assert len(of_nodes) == leases
    assert [i.kind for i in read_history(ended.events).intervals if i.kind in ("task", "spare")] == ["spare"] * 2


def test_a_step_that_did_not_begin_in_time_leaves_the_line():
    """Job 1 has all nodes when job 2 offers its work, which is then asked for before there is a node."""
    busy, spare = [("classical", [(7.0, 2)])], [("quantum", 1.0), ("speculate", [(1.0, 1)], 0.1)]
    ended = run([busy, spare], {"spare": 1.0, "per_task": 1.0}, Site(nodes=2))
    assert sum(event["event"] == "withdrawn" for event in ended.events) == 1
    assert not any(i.kind == "spare" for i in read_history(ended.events).intervals)
