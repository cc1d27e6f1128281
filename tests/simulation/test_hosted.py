"""Drivers that live in Slurm jobs cannot wait for each other for ever."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from qloom.broker.inprocess import InProcessBroker
from qloom.errors import JobError
from qloom.journal.file import Journal
from qloom.model import QpuHold
from qloom.programs.load import Program
from qloom.runs.assembly import Assembly
from qloom.runs.runner import Plan
from qloom.site import Site
from qloom.strategies import STRATEGIES
from qloom.world import Request
from qloom.worlds.hosted import HostedWorld
from qloom.worlds.line import FifoLine
from qloom.worlds.partitions import Partitions
from qloom.worlds.virtual.loop import VirtualClock, run_virtual
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
        line = FifoLine(Partitions(SITE.node_names, {qpu.name: qpu.shares for qpu in SITE.qpus}), clock)
        qpus = VirtualWorld(SITE, clock)
        broker = InProcessBroker(qpus.devices, qpus.shares, clock)
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
            job = asyncio.ensure_future(Assembly(host.world, broker, journal, past).run_job(plan, number))
            host.handover.main = job
            await asyncio.wait([job])
            await host.world.close()
            await hosts.leave(host, world, cores)
            asked = host.handover.request
            if asked is None:
                return Ended(job.result(), drivers, clock.now_us() / 1e6)
        raise AssertionError(f"{MOST_DRIVERS} drivers were not enough")

    result: list[Ended] = run_virtual(main)
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


class NoRoom(hosts.NextJob):
    """The engine takes no job."""

    async def submit(self, request: Request) -> None:
        raise OSError("no space left on device")


def in_virtual_time(scenario):  # type: ignore[no-untyped-def]
    """Run it with a world of three nodes."""
    return run_virtual(lambda clock: scenario(VirtualWorld(SITE, clock)))


def test_a_run_that_cannot_be_handed_over_says_why_and_holds_nothing():
    async def scenario(world):  # type: ignore[no-untyped-def]
        own, others = await world.grant(Request("own", "", 1, 1)), await world.grant(Request("others", "", 1, 1))
        hosted = HostedWorld(world, own, QpuHold.TASK, NoRoom(), 2.0)
        with pytest.raises(JobError, match="cannot hand the run over: no space left on device"):
            await hosted.grant(Request("j1.1", "j1", 3, 3))
        await hosted.close()
        await asyncio.gather(world.free(own), world.free(others))
        world.require_all_free()

    in_virtual_time(scenario)


def test_a_driver_beside_its_allocations_never_mixes_them_with_its_own_job():
    """Ranks of an MPI task cannot span two jobs of Slurm, also after the run was handed over."""

    async def scenario(world):  # type: ignore[no-untyped-def]
        own = await world.grant(Request("own", "", 1, 1))
        hosted = HostedWorld(world, own, QpuHold.TASK, hosts.NextJob(), 2.0, whole=True)
        wide, narrow = (
            await hosted.grant(Request("j1.1", "j1", 2, 2)),
            await hosted.grant(Request("j1.2", "j1", 1, 1)),
        )
        assert (sorted(wide.nodes), narrow.nodes) == (["n2", "n3"], own.nodes)

    in_virtual_time(scenario)


def test_what_comes_free_serves_all_who_wait_for_it():
    async def scenario(world):  # type: ignore[no-untyped-def]
        own, others = await world.grant(Request("own", "", 2, 2)), await world.grant(Request("others", "", 1, 1))
        hosted = HostedWorld(world, own, QpuHold.TASK, hosts.NextJob(), 60.0)
        first = [await hosted.grant(Request(f"j1.{number}", "j1", 1, 1)) for number in range(2)]
        waiting = [asyncio.ensure_future(hosted.grant(Request(f"j1.{number}", "j1", 1, 1))) for number in (2, 3)]
        await asyncio.sleep(1.0)
        await asyncio.gather(*(hosted.free(lease) for lease in first))
        served = [lease.nodes[0] for lease in await asyncio.wait_for(asyncio.gather(*waiting), 0.5)]
        assert sorted(served) == sorted(own.nodes)
        await world.free(others)

    in_virtual_time(scenario)


class Executing(VirtualWorld):
    """A QPU of the driver's own is busy for ten seconds."""

    def executes_quantum(self) -> bool:
        return self.clock.now_us() < 10_000_000


def test_a_run_is_not_handed_over_while_its_own_qpu_executes():
    async def scenario(clock):  # type: ignore[no-untyped-def]
        world, handover = Executing(SITE, clock), hosts.NextJob()
        own = await world.grant(Request("own", "", 1, 1))
        await world.grant(Request("others", "", 1, 1))
        hosted = HostedWorld(world, own, QpuHold.TASK, handover, 2.0)
        handover.main = asyncio.ensure_future(hosted.grant(Request("j1.1", "j1", 3, 3)))
        await asyncio.sleep(9.0)
        assert handover.next_job is None
        await asyncio.sleep(3.0)
        assert handover.next_job is not None
        assert hosted.handed_on is not None
        assert hosted.handed_on.reason == "2 nodes did not come in 2 s"

    run_virtual(scenario)
