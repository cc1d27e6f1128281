"""A node fails under a task: the task runs again, elsewhere, and the program never knows."""

from __future__ import annotations

import pytest

from qloom.journal.accounting import read_history
from qloom.site import Site
from qloom.strategies import STRATEGIES
from qloom.worlds.virtual.world import Faults
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
    disturbed = simulate(programs, [strategy], site, faults=Faults(seed=7, node_rate=rate))
    assert disturbed.outcomes == undisturbed.outcomes
    lost = [event for event in disturbed.events if event.get("lost")]
    assert lost, "the fault was not injected"
    assert all(interval.state != "open" for interval in read_history(disturbed.events).intervals)
