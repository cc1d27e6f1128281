"""The way into the local world."""

from __future__ import annotations

from qloom.site import Site
from qloom.worlds import Surroundings
from qloom.worlds.local.world import LocalWorld
from qloom.worlds.realtime import RealClock, execute

__all__ = ["REAL_TIME", "check", "execute", "make", "submitted"]

REAL_TIME = True
submitted = None


def check(site: Site) -> None:
    """Any site fits this machine: nodes are only slots."""


def make(surroundings: Surroundings, clock: RealClock) -> LocalWorld:
    """Slots of this machine, with a log for each worker."""
    logs = None
    if surroundings.directory is not None:
        logs = surroundings.directory / "logs"
        logs.mkdir(mode=0o700, exist_ok=True)
    return LocalWorld(surroundings.site, clock, surroundings.worker_set_up, logs, surroundings.record)
