"""Where a test runs: whole jobs in virtual time, with faults and with cancellation at any moment; a private home.

Nothing may be left behind, of jobs or of what is tested.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qloom.broker.inprocess import InProcessBroker
from qloom.errors import QloomError
from qloom.journal.event import Event
from qloom.journal.events import RunStarted
from qloom.journal.file import Journal
from qloom.journal.results import ResultStore
from qloom.plugins import Registry
from qloom.runs.assembly import assemble
from qloom.runs.plan import Plan
from qloom.site import Site
from qloom.worlds.virtual.loop import VirtualClock, run_virtual
from qloom.worlds.virtual.world import InjectedFaults, VirtualWorld

LIMIT_S = 10_000.0  # of virtual time: whoever is not done by then waits for ever
UNDER_TEST = "under-test"


@dataclass
class Simulation:
    """The outcome: a result or an error for each job, and the journal."""

    outcomes: list[Any]
    events: list[Event]
    kept: ResultStore


def simulate(
    plans: Sequence[Plan],
    site: Site,
    *,
    faults: InjectedFaults | None = None,
    cancel_at_s: Mapping[int, float] | None = None,
    limit_s: float = LIMIT_S,
) -> Simulation:
    """Run one job for each plan, all at once on one site, and require that nothing is left behind.

    `cancel_at_s` says which jobs are cancelled, and when. Raises `Deadlock`, which says who waits for what, if jobs
    wait for each other or are not done after `limit_s` of virtual time.
    """

    async def main(clock: VirtualClock) -> Simulation:
        journal = Journal(None, clock)
        world = VirtualWorld(site, clock, faults=faults or InjectedFaults())
        broker = InProcessBroker(world.devices, world.shares, clock, site.overheads.queue_call_s)
        clock.explain_with(lambda: [*world.who_waits(), *broker.who_waits()])
        clock.limit(limit_s)
        journal.record(RunStarted(version=1))
        async with assemble(world, journal, broker) as assembly:
            assembly = assembly.looking_ahead(",".join(plan.strategy for plan in plans))
            at_once = [replace(plan, jobs=len(plans)) for plan in plans]  # synchronous ones do not share a stack
            runs = [assembly.start_job(plan, number) for number, plan in enumerate(at_once)]
            for number, at_s in (cancel_at_s or {}).items():
                asyncio.get_running_loop().call_later(at_s, runs[number].cancel)
            outcomes = await asyncio.gather(*runs, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, QloomError | asyncio.CancelledError):
                raise outcome
        world.require_all_free()
        if not broker.core.is_idle():
            raise AssertionError("the broker still has tasks or sessions")
        return Simulation(list(outcomes), journal.events or [], journal.results)

    return run_virtual(main)


@contextmanager
def private_home() -> Iterator[Path]:
    """A temporary QLOOM_HOME, so that no run of a test is left among the user's."""
    before = os.environ.get("QLOOM_HOME")
    with tempfile.TemporaryDirectory(prefix="qloom-") as directory:
        os.environ["QLOOM_HOME"] = directory
        try:
            yield Path(directory)
        finally:
            if before is None:
                del os.environ["QLOOM_HOME"]
            else:
                os.environ["QLOOM_HOME"] = before


@contextmanager
def registered(registry: Registry[Any], given: Any) -> Iterator[str]:
    """A name for what is tested: as given, or while it is tested if it is not a name."""
    if isinstance(given, str):
        yield given
        return
    registry[UNDER_TEST] = given
    try:
        yield UNDER_TEST
    finally:
        del registry[UNDER_TEST]
