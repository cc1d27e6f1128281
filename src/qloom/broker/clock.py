"""The service's clock: it never goes back, neither while it runs nor over a restart."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

LOG = logging.getLogger("qloom.broker")


class ServiceClock:
    """Starts at the time of day, or where the last run ended if that is later, and goes on evenly from there."""

    def __init__(self, floor_us: int = 0, wall_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        wall = wall_us()
        if wall < floor_us:
            LOG.warning(
                "the clock went back by %.1f s since the broker last ran: going on from the later time",
                (floor_us - wall) / 1e6,
            )
        self._epoch_us = max(wall, floor_us) - time.monotonic_ns() // 1000

    def now_us(self) -> int:
        """Microseconds since 1970, if the machine's clock was right."""
        return self._epoch_us + time.monotonic_ns() // 1000

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Let time pass."""
        return asyncio.sleep(seconds)

    def deadline(self, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call `then` when the time is up; returns a way to cancel."""
        return asyncio.get_running_loop().call_later(max(0.0, seconds), then).cancel
