"""What is simulated is what happens: the local world and virtual time hold the same, in the same order.

How closely their seconds agree depends on what else the machine does, and so is no test but a benchmark:
`python -m benchmarks.agreement local`.
"""

from __future__ import annotations

from itertools import groupby

import pytest

import qloom
from qloom.journal.history import read_history
from qloom.strategies import STRATEGIES
from qloom.views.accounting import account
from tests.journals import as_lines

SECONDS = {"classical_s": [0.06, 0.02, 0.04], "score_s": 0.03, "quantum_s": 0.05, "iterations": 2}
HOLDING = ("requested", "granted", "grown", "shrunk", "released", "withdrawn")
TASKS = ("task_started", "task_ended")
CALLS = ("called", "returned", "quantum_queued", "quantum_started", "quantum_ended", "job_ended")
STEPS = HOLDING + TASKS + CALLS
ROUNDING_S = 1e-3
# Weave asks for nodes earlier or later as it learns how long phases take; the jobs of pertask end in any order.
BY_DURATION = ("weave", "pertask")
FIXED = tuple(name for name in STRATEGIES if name not in BY_DURATION)
BY_NEIGHBOURS = ("malleable",)  # grows by what another job leaves at that moment
CASES = [(name, jobs) for name in FIXED for jobs in (1, 2) if jobs == 1 or name not in BY_NEIGHBOURS]


def structure(events, job):
    """What a job asked for, held, ran and gave back, in order; tasks that run at once may end in any order."""
    steps = [_step(event) for event in as_lines(events) if event.get("job") == job and event["event"] in STEPS]
    found = []
    for are_tasks, group in groupby(steps, key=lambda step: step[0] in TASKS):
        steps_of_group = list(group)
        found += sorted(steps_of_group) if are_tasks else steps_of_group
    return found


def _step(event):
    nodes = event.get("nodes")
    count = len(nodes) if isinstance(nodes, list) else nodes
    details = [str(event.get(name)) for name in ("hold", "device", "grow", "kind", "state")]
    return (event["event"], str(count), *details)


def run(world, strategy, jobs):
    outcome = qloom.run("phases", strategy=strategy, world=world, jobs=jobs, parameters=SECONDS, in_memory=True)
    assert not outcome.errors
    return outcome


@pytest.mark.parametrize(("strategy", "jobs"), CASES)
def test_both_worlds_hold_the_same_in_the_same_order(strategy, jobs):
    """Two jobs share three nodes, so that the second one waits."""
    real, virtual = run("local", strategy, jobs), run("virtual", strategy, jobs)
    assert real.results == virtual.results
    for number in range(1, jobs + 1):
        assert structure(real.events, f"j{number}") == structure(virtual.events, f"j{number}")


@pytest.mark.parametrize("strategy", FIXED)
def test_virtual_time_without_overheads_is_a_lower_bound(strategy):
    """However busy the machine is, nothing sleeps for less than it is told to, and nothing is held for less."""
    real, virtual = (account(read_history(run(world, strategy, 1).events)) for world in ("local", "virtual"))
    assert real.wall_s >= virtual.wall_s - ROUNDING_S
    assert real.node_s_held >= virtual.node_s_held - ROUNDING_S
    assert real.qpu_s_held >= virtual.qpu_s_held - ROUNDING_S
    assert real.qpu_s_busy >= virtual.qpu_s_busy - ROUNDING_S


@pytest.mark.parametrize("strategy", BY_DURATION)
def test_both_worlds_do_the_same_work_whenever_they_ask_for_nodes(strategy):
    real, virtual = run("local", strategy, 2), run("virtual", strategy, 2)
    assert real.results == virtual.results
    for job in ("j1", "j2"):
        done = [
            sorted(
                event["work"]
                for event in as_lines(outcome.events)
                if event.get("job") == job and event["event"] == "task_ended"
            )
            for outcome in (real, virtual)
        ]
        assert done[0] == done[1]
