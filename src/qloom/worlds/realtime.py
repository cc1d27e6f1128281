"""Real time: the clock of worlds in which it passes by itself, and the loop that they run in."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any


class RealClock:
    """Time since the run began, from a clock that never goes back."""

    def __init__(self, began_us: int | None = None) -> None:
        since_us = 0 if began_us is None else time.time_ns() // 1000 - began_us
        self._zero_ns = time.monotonic_ns() - max(0, since_us) * 1000

    def now_us(self) -> int:
        """Microseconds since the start of the run."""
        return (time.monotonic_ns() - self._zero_ns) // 1000

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    def deadline(self, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call `then` when the time is up."""
        return asyncio.get_running_loop().call_later(seconds, then).cancel


def execute(main: Callable[[RealClock], Coroutine[Any, Any, Any]], began_us: int, at_us: int) -> Any:
    """Run in real time; a request to terminate is handled as Ctrl-C is: everything is given back."""

    async def guarded() -> Any:
        running = asyncio.ensure_future(main(RealClock(began_us)))
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        return await running

    return asyncio.run(guarded())
