"""The way into virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from qloom.site import Site
from qloom.worlds import Surroundings
from qloom.worlds.virtual.loop import VirtualClock, VirtualLoop
from qloom.worlds.virtual.world import VirtualWorld

REAL_TIME = False
submitted = None


def check(site: Site) -> None:
    """Any site can be modelled."""


def execute(main: Callable[[VirtualClock], Coroutine[Any, Any, Any]], began_us: int, at_us: int) -> Any:
    """Run in a loop of its own, from `at_us` on."""
    loop = VirtualLoop()  # type: ignore[abstract]
    loop.now_us = at_us
    try:
        return loop.run_until_complete(main(VirtualClock(loop)))
    finally:
        loop.close()


def make(surroundings: Surroundings, clock: VirtualClock) -> VirtualWorld:
    """A modelled cluster; a deadlock is explained by those who stand in its line."""
    world = VirtualWorld(surroundings.site, clock, surroundings.profile)
    clock.explain_with(world.who_waits)
    return world
