"""The way into virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from qloom.worlds import RunContext, WorldEntry, WorldFactory
from qloom.worlds.virtual.loop import VirtualClock, run_virtual
from qloom.worlds.virtual.world import VirtualWorld

T = TypeVar("T")


@dataclass(frozen=True)
class _VirtualFactory:
    clock: VirtualClock

    def make(self, context: RunContext) -> VirtualWorld:
        """A modelled cluster; those who stand in its line explain a deadlock."""
        world = VirtualWorld(context.site, self.clock, context.profile)
        self.clock.explain_with(world.who_waits)
        return world


class VirtualEntry(WorldEntry):
    """The way into a modelled cluster. Any site can be modelled."""

    real_time = False

    def run(self, main: Callable[[WorldFactory], Coroutine[Any, Any, T]], began_us: int, at_us: int) -> T:
        """Run in a new virtual loop, from `at_us` on."""
        return run_virtual(lambda clock: main(_VirtualFactory(clock)), at_us)


ENTRY = VirtualEntry()
