"""A node fails under a task: the task runs again, elsewhere, and the program never knows."""

from __future__ import annotations

import asyncio

import pytest

from qloom.errors import NodeLost
from qloom.journal.history import read_history
from qloom.site import Site
from qloom.strategies import STRATEGIES
from qloom.strategies.workflow import PerTask, Room, Workflow
from qloom.worlds.virtual.world import InjectedFaults
from tests.journals import as_lines
from tests.simulation.harness import simulate

STEPS = [
    ("classical", [(3.0, 1), (1.0, 1), (2.0, 2)]),
    ("quantum", 2.0),
    ("overlap", [(1.5, 1), (2.5, 3)], 1.0),
    ("classical", [(1.0, 1)]),
]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("jobs", "rate"), [(2, 0.3), (1, 1.0)])
def test_work_on_a_node_that_fails_runs_again_with_the_same_result(strategy, jobs, rate):
    site = Site(nodes=4)
    programs = [STEPS] * jobs
    undisturbed = simulate(programs, [strategy], site)
    disturbed = simulate(programs, [strategy], site, faults=InjectedFaults(seed=7, node_rate=rate))
    assert disturbed.outcomes == undisturbed.outcomes
    lost = [event for event in as_lines(disturbed.events) if event.get("lost")]
    assert lost, "the fault was not injected"
    assert all(interval.state != "open" for interval in read_history(disturbed.events).intervals)


@pytest.mark.parametrize(("tasks", "runs"), [(1, 2), (2, 1)])
def test_only_a_step_of_one_task_runs_again_as_a_whole(monkeypatch, tasks, runs):
    ran = []

    async def lose_a_node(_strategy, tasks, _room):
        ran.append(tasks)
        raise NodeLost("a node is gone and none has come in its place")

    monkeypatch.setattr(Workflow, "_step", lose_a_node)
    with pytest.raises(NodeLost):
        asyncio.run(PerTask._step(object.__new__(PerTask), [object()] * tasks, Room(4)))
    assert len(ran) == runs


def test_a_node_that_fails_under_spare_work_is_no_longer_held_and_another_is_asked_for():
    """All nodes of the job fail under spare work that is never asked for; the next phase needs them all."""
    steps = [("guess", [(1.0, 1), (1.1, 1)], 5.0), ("classical", [(1.0, 2)])]
    ended = simulate([steps], ["offload"], Site(nodes=2), faults=InjectedFaults(seed=7, node_rate=1.0))
    assert ended.outcomes == simulate([steps], ["offload"], Site(nodes=2)).outcomes
    lost_us = [event["at_us"] for event in as_lines(ended.events) if event.get("lost")]
    assert lost_us[:2] == [1_000_000, 1_100_000]
    held = [interval for interval in read_history(ended.events).intervals if interval.kind == "node"]
    assert sorted(interval.end_us for interval in held)[:2] == lost_us[:2]
