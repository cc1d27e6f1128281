"""Real time: the clock of worlds in which it passes by itself, and the way into them."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from qloom.ports import World
from qloom.site import Site
from qloom.worlds import DriverJobs, RunContext, WorldEntry, WorldFactory

T = TypeVar("T")


class RealClock:
    """Time since the run began, from a clock that never goes back."""

    real_time = True

    def __init__(self, began_us: int | None = None) -> None:
        since_us = 0 if began_us is None else time.time_ns() // 1000 - began_us
        self._zero_ns = time.monotonic_ns() - max(0, since_us) * 1000

    def now_us(self) -> int:
        """Microseconds since the start of the run."""
        return (time.monotonic_ns() - self._zero_ns) // 1000

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call `then` when the time is up."""
        return asyncio.get_running_loop().call_later(max(0.0, seconds), then).cancel

    def deadline(self, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call `then` when the time is up."""
        return asyncio.get_running_loop().call_later(seconds, then).cancel


MakeWorld = Callable[[RunContext, RealClock], World]


@dataclass(frozen=True)
class _RealTimeFactory:
    clock: RealClock
    make_world: MakeWorld

    def make(self, context: RunContext) -> World:
        return self.make_world(context, self.clock)


class RealTimeEntry(WorldEntry):
    """The way into a world in real time; SIGTERM is handled as Ctrl-C is: everything is given back."""

    def __init__(
        self,
        make_world: MakeWorld,
        check_site: Callable[[Site], object] | None = None,
        driver_jobs: DriverJobs | None = None,
    ) -> None:
        self._make_world = make_world
        self._check_site = check_site
        self.driver_jobs = driver_jobs

    def check(self, site: Site) -> None:
        """Refuse a site that this world cannot be made for."""
        if self._check_site is not None:
            self._check_site(site)

    def run(self, main: Callable[[WorldFactory], Coroutine[Any, Any, T]], began_us: int, at_us: int) -> T:
        """Run in a new event loop of this thread."""

        async def guarded() -> T:
            if threading.current_thread() is threading.main_thread():
                running: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment]  # this is one
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
            return await main(_RealTimeFactory(RealClock(began_us), self._make_world))

        return asyncio.run(guarded())
