"""No strategy asks a cluster for more than its program has work for: each request costs a real controller a job."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from qloom.journal.file import Event
from qloom.payloads.adapt import delay
from qloom.programs.load import Program
from qloom.runs.runner import Plan
from qloom.site import Overheads, Site
from qloom.strategies import STRATEGIES
from qloom.worlds.virtual.world import VirtualWorld
from tests.journals import as_lines
from tests.simulation.harness import compute, simulate, simulate_plans
from tests.simulation.test_liveness import HOLDS, PROGRAMS, SITES
from tests.simulation.test_workflow import FEW
from tests.simulation.two_jobs import SLURM


def require_few_requests(events: list[Event], nodes: int) -> None:
    """At most two requests for a task, spare ones included, and as many as the job has nodes for a phase.

    A task is asked for once, or again after its request gave way to others. A phase may grow node by node, ask for
    nodes before its tasks are there, and hold a QPU.
    """
    requests: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for event in as_lines(events):
        if event["event"] == "requested":
            requests[event["job"]] += 1
        elif event["event"] == "called":
            most[event["job"]] += 2 * len(event["names"]) + nodes
        elif event["event"] == "speculated":
            most[event["job"]] += 2 * len(event["works"])
    assert all(requests[job] <= most[job] for job in requests), f"asked {requests}, at most {most}"


@pytest.mark.parametrize("strategy", STRATEGIES)
@FEW
@given(programs=PROGRAMS, hold=some.sampled_from(HOLDS), site=SITES)
def test_requests_are_bounded_by_the_tasks_and_phases_of_every_program(strategy, programs, hold, site):
    require_few_requests(simulate(programs, [strategy + hold], site).events, site.nodes)


async def loop(job: Any, nodes: int = 2) -> None:
    """Three iterations that offer the work of the next one, on several nodes."""
    for iteration in range(3):
        await job.classical(compute(60.0, iteration).needs(nodes=nodes))
        job.speculate(compute(60.0, iteration + 1).needs(nodes=nodes))
        await job.quantum(delay(120.0))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("overheads", [Overheads(), SLURM], ids=["none", "slurm"])
def test_spare_work_of_several_nodes_costs_no_request(strategy, overheads):
    site = Site(nodes=4, overheads=overheads)
    events = simulate_plans([Plan(Program("loop", loop), {}, strategy, {}, "virtual", site)], site).events
    assert sum(event["event"] == "requested" for event in as_lines(events)) <= 7, (
        "one for each phase and one in the beginning"
    )


async def guess(job: Any) -> None:
    """What is begun early is never needed, and still runs when more is offered."""
    for iteration in range(2):
        job.speculate(compute(400.0, iteration))
        await job.quantum(delay(100.0))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_spare_work_beyond_what_a_job_may_run_costs_no_request(strategy):
    site = Site(nodes=2)
    events = simulate_plans([Plan(Program("guess", guess), {}, strategy, {}, "virtual", site)], site).events
    assert sum(event["event"] == "requested" for event in as_lines(events)) <= 4, "one for each task and each phase"


async def offer(job: Any) -> None:
    job.speculate(compute(20.0, 1), compute(20.0, 2))
    await job.quantum(delay(600.0))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_node_on_which_spare_work_may_not_begin_is_not_asked_for_again_and_again(strategy, monkeypatch):
    """An engine may grant a node for spare work while another job waits for more nodes than are free."""
    monkeypatch.setattr(VirtualWorld, "nodes_are_short", lambda self: True)
    site = Site(nodes=3)
    events = simulate_plans([Plan(Program("offer", offer), {}, strategy, {}, "virtual", site)], site).events
    require_few_requests(events, nodes=3)
