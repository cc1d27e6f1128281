"""Drivers that live in Slurm jobs cannot wait for each other for ever."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from qloom.broker.inprocess import InProcessBroker
from qloom.journal.file import Journal
from qloom.programs.load import Program
from qloom.runner import Plan, run_job
from qloom.site import Site
from qloom.strategies import STRATEGIES
from qloom.worlds.line import Line
from qloom.worlds.partitions import Partitions
from qloom.worlds.virtual import entry
from qloom.worlds.virtual.loop import VirtualClock
from qloom.worlds.virtual.world import VirtualWorld
from tests.simulation import hosts
from tests.simulation.harness import interpret, simulate

SITE = Site(nodes=3)
STEPS = [
    ("classical", [(0.5, 1), (0.5, 1), (0.5, 1)]),
    ("quantum", 1.0),
    ("classical", [(0.5, 2)]),
    ("overlap", [(0.5, 1), (0.5, 1)], 1.0),
]
ALONE = simulate([STEPS], ["offload"], SITE).outcomes[0]
KINDS = ["in-job", "beside", "chain"]
MOST_DRIVERS = 30  # of one run


@dataclass(frozen=True)
class Ended:
    """What came of one run."""

    result: object
    drivers: int  # one after the other
    ended_s: float


def run_side_by_side(kinds: list[str], strategy: str, patience_s: float = hosts.PATIENCE_S) -> list[Ended]:
    """One run for each kind of driver, on one cluster."""

    async def main(clock: VirtualClock) -> list[Ended]:
        line = Line(Partitions(SITE.node_names, {qpu.name: qpu.shares for qpu in SITE.qpus}), clock)
        broker = InProcessBroker(VirtualWorld(SITE, clock).devices, clock)
        cores = hosts.Cores(line)
        clock.explain_with(line.who_waits)
        ended = await asyncio.gather(
            *(one_run(kind, number, line, cores, broker, clock) for number, kind in enumerate(kinds))
        )
        assert line.partitions.all_free()
        assert broker.core.is_idle()
        return list(ended)

    async def one_run(kind, number, line, cores, broker, clock):  # type: ignore[no-untyped-def]
        journal, asked = Journal(None, clock), None
        nodes = SITE.nodes - (kind == "beside")
        site = Site(nodes=nodes, cluster_nodes=SITE.nodes)
        plan = Plan(Program("interpret", interpret), {"steps": STEPS}, strategy, world="virtual", site=site)
        for drivers in range(1, MOST_DRIVERS):
            world = VirtualWorld(SITE, clock, line=line)
            host = await hosts.house(kind, plan, world, cores, asked, f"driver of {number}", patience_s)
            past = list(journal.events or [])
            job = asyncio.ensure_future(run_job(plan, number, host.world, broker, journal, past=past))
            host.handover.main = job
            await asyncio.wait([job])
            await host.world.close()
            await hosts.leave(host, world, cores)
            asked = host.handover.request
            if asked is None:
                return Ended(job.result(), drivers, clock.now_us() / 1e6)
        raise AssertionError(f"{MOST_DRIVERS} drivers were not enough")

    result: list[Ended] = entry.execute(main, 0, 0)
    return result


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [(kind, name) for kind in KINDS for name, strategy in STRATEGIES.items() if kind != "chain" or strategy.chains],
)
def test_drivers_of_one_kind_do_not_block_each_other(kind, strategy):
    for run in run_side_by_side([kind] * 4, strategy):
        assert run.result == ALONE


@pytest.mark.parametrize("strategy", [name for name, strategy in STRATEGIES.items() if strategy.chains])
def test_drivers_of_all_kinds_do_not_block_each_other(strategy):
    for run in run_side_by_side(["in-job", "beside", "chain", "here", "in-job"], strategy):
        assert run.result == ALONE


@pytest.mark.parametrize("patience_s", [2.0, 1000.0])
def test_drivers_that_wait_for_each_other_do_so_until_the_bound_and_no_longer(patience_s):
    runs = run_side_by_side(["in-job", "in-job"], "workflow", patience_s)
    assert sum(run.drivers for run in runs) > 2, "one of them was handed over"
    assert patience_s < max(run.ended_s for run in runs) < 5 * patience_s + 20


def test_a_driver_that_is_not_in_the_way_is_never_replaced():
    (run,) = run_side_by_side(["in-job"], "workflow")
    assert (run.result, run.drivers) == (ALONE, 1)
