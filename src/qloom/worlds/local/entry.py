"""The way into the local world."""

from __future__ import annotations

from qloom.worlds import RunContext
from qloom.worlds.local.world import LocalWorld
from qloom.worlds.realtime import RealClock, RealTimeEntry


def make_local_world(context: RunContext, clock: RealClock) -> LocalWorld:
    """Slots of this machine, with a log for each worker."""
    logs = None
    if context.directory is not None:
        logs = context.directory / "logs"
        logs.mkdir(mode=0o700, exist_ok=True)
    return LocalWorld(context.site, clock, context.worker_set_up, logs, context.record)


ENTRY = RealTimeEntry(make_local_world)
