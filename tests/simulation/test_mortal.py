"""A driver that is killed does nothing more: what it held stays held until others give it back."""

from __future__ import annotations

import pytest

from qloom.broker.inprocess import InProcessBroker
from qloom.programs.load import Program
from qloom.runs.assembly import Assembly
from qloom.runs.runner import Plan
from qloom.site import Site
from qloom.worlds.line import FifoLine
from qloom.worlds.partitions import Partitions
from qloom.worlds.virtual.loop import VirtualClock
from qloom.worlds.virtual.world import VirtualWorld
from tests.simulation.harness import interpret
from tests.simulation.mortal import Driver, MortalLoop, OwnJournal

SITE = Site(nodes=2)
STEPS = [("quantum", 5.0), ("classical", [(5.0, 1)])]


async def killed_at(at_s: float, clock: VirtualClock) -> None:
    """Kill a job that holds nodes and a QPU."""
    line = FifoLine(Partitions(SITE.node_names, {qpu.name: qpu.shares for qpu in SITE.qpus}), clock)
    qpus = VirtualWorld(SITE, clock)
    broker = InProcessBroker(qpus.devices, qpus.shares, clock)
    driver = Driver(1, SITE, line, broker, clock)
    journal = OwnJournal(driver, clock)
    plan = Plan(Program("interpret", interpret), {"steps": STEPS}, "coschedule", world="virtual", site=SITE)
    main = driver.start(Assembly(driver.world, driver.broker, journal).run_job(plan, 0))
    await clock.sleep(at_s)
    driver.kill(after_steps=0)
    main.cancel()
    written = len(journal.written)
    await clock.sleep(100.0)
    assert not main.done()
    assert len(journal.written) == written
    assert line.partitions.free_nodes == 0
    assert not broker.core.is_idle(), "its session is still open"
    driver.line.reap()
    await driver.broker.expire()
    assert line.partitions.all_free()
    assert broker.core.is_idle()
    driver.bury()


@pytest.mark.parametrize("at_s", [2.0, 7.0])
def test_a_killed_driver_leaves_all_that_it_held_to_the_reaper_and_the_broker(at_s):
    loop = MortalLoop()  # type: ignore[abstract]
    try:
        loop.run_until_complete(killed_at(at_s, VirtualClock(loop)))
    finally:
        loop.close()
