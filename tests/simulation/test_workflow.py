"""A workflow that submits spare work too: no result changes, nothing runs twice, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as some

from qloom.errors import QloomError
from qloom.journal.history import read_history
from qloom.model import Need, Work
from qloom.payloads.adapt import delay
from qloom.ports import Requirements
from qloom.programs.load import Program
from qloom.runs.runner import Plan
from qloom.site import Site
from qloom.strategies.workflow import Workflow
from qloom.worlds.virtual.world import InjectedFaults
from tests.journals import as_lines
from tests.simulation.harness import Simulation, compute, interpret, simulate, simulate_plans
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
        for event in as_lines(ended.events)
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
    faults = InjectedFaults(seed, task_rate=0.1, quantum_rate=0.1)
    ended = run(programs, options, site, faults=faults, cancel_at_s=cancelled)
    require_sound(ended.events, max(qpu.lanes for qpu in site.qpus))
    for number, outcome in enumerate(ended.outcomes):
        assert not isinstance(outcome, QloomError) or "injected fault" in str(outcome)
        assert not isinstance(outcome, BaseException) or isinstance(outcome, QloomError) or number in cancelled


@pytest.mark.parametrize(("per_task", "leases"), [(1.0, 2), (0.0, 1)])
def test_spare_work_runs_in_steps_of_its_own(per_task, leases):
    steps = [("speculate", [(2.5, 1), (2.5, 1)], 7.0)]
    ended = run([steps], {"spare": 1.0, "per_task": per_task}, Site(nodes=3))
    of_nodes = [event for event in as_lines(ended.events) if event["event"] == "requested" and event["nodes"]]
    assert len(of_nodes) == leases
    assert [i.kind for i in read_history(ended.events).intervals if i.kind in ("task", "spare")] == ["spare"] * 2


def test_a_step_that_did_not_begin_in_time_leaves_the_line():
    """Job 1 has all nodes when job 2 offers its work, which is then asked for before there is a node."""
    busy, spare = [("classical", [(7.0, 2)])], [("quantum", 1.0), ("speculate", [(1.0, 1)], 0.1)]
    ended = run([busy, spare], {"spare": 1.0, "per_task": 1.0}, Site(nodes=2))
    assert sum(event["event"] == "withdrawn" for event in as_lines(ended.events)) == 1
    assert not any(i.kind == "spare" for i in read_history(ended.events).intervals)


def most_nodes(ended: Simulation) -> int:
    """Held at the same time."""
    held: dict[str, int] = {}
    most = 0
    for event in as_lines(ended.events):
        if event["event"] == "granted":
            held[event["lease"]] = len(event["nodes"])
        elif event["event"] == "released":
            del held[event["lease"]]
        most = max(most, sum(held.values()))
    return most


def run_small(program: Any, options: dict[str, float]) -> Simulation:
    """A job of two nodes where there are ten."""
    plan = Plan(Program("small", program), {}, "workflow", options, "virtual", Site(nodes=2))
    return simulate_plans([plan], Site(nodes=10))


def test_steps_beyond_the_nodes_of_the_job_wait_for_one_to_end():
    async def required(job: Any) -> None:
        await job.classical(*(compute(1.0, number) for number in range(4)), compute(1.0, 4).needs(nodes=2))

    async def spare(job: Any) -> None:
        job.speculate(*(compute(1.0, number) for number in range(4)))
        await job.quantum(delay(7.0))
        await job.classical(*(compute(1.0, number) for number in range(4)))

    assert most_nodes(run_small(required, {"per_task": 1.0})) == 2
    assert most_nodes(run_small(spare, {"per_task": 1.0, "spare": 1.0})) == 2


def test_wide_spare_work_is_not_run_and_asks_for_nothing():
    steps = [("speculate", [(2.5, 2)], 7.0)]
    ended = run([steps], {"spare": 1.0}, Site(nodes=3))
    assert sum(event["event"] == "requested" and bool(event["nodes"]) for event in as_lines(ended.events)) == 1


def test_a_step_that_has_its_nodes_goes_on_when_one_of_its_tasks_is_asked_for():
    """Of three spare tasks two run; the third is asked for and runs elsewhere, the others are not dropped."""

    async def program(job: Any) -> None:
        job.speculate(*(compute(5.0, number) for number in range(3)))
        await job.quantum(delay(1.0))
        await job.classical(compute(5.0, 2))
        await job.classical(compute(5.0, 0), compute(5.0, 1))

    ended = run_small(program, {"spare": 1.0})
    assert not any(event.get("state") == "dropped" for event in as_lines(ended.events))
    assert sum(event["event"] == "claimed" for event in as_lines(ended.events)) == 2


class OneGrant:
    """A cluster and its one allocation, granted when the test says so."""

    def __init__(self) -> None:
        self.granted, self.is_released = asyncio.Event(), False

    async def allocate(self, need: Need, **_: Any) -> OneGrant:
        await (asyncio.Event() if self.granted.is_set() else self.granted).wait()  # a second one never comes
        return self

    def fill_idle_nodes(self, spare: Any) -> None:
        """They run until the allocation is released."""

    async def wait_idle(self, for_s: float) -> None:
        await asyncio.Event().wait()

    async def __aenter__(self) -> OneGrant:
        return self

    async def __aexit__(self, *failure: object) -> None:
        self.is_released = True


def test_a_task_that_is_asked_for_as_its_spare_step_begins_is_not_run_there_too():
    """The phase looked for a spare run just before the step had its nodes, and comes to the strategy just after."""

    async def scenario() -> bool:
        cluster, phases = OneGrant(), []
        workflow = Workflow(Requirements(cluster, nodes=2, options={"spare": 1.0}))
        work = Work(compute(1.0), "j1", "key", 0)
        await workflow.speculate([work])
        await asyncio.sleep(0)
        asking = asyncio.get_running_loop().create_future()
        asking.add_done_callback(lambda _: phases.append(asyncio.ensure_future(workflow.classical([work]))))
        asking.set_result(None)
        cluster.granted.set()
        for _ in range(5):
            await asyncio.sleep(0)
        released = cluster.is_released
        phases[0].cancel()
        await workflow.end()
        return released

    assert asyncio.run(scenario())
