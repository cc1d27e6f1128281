"""The way into the local world."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from qloom.worlds import Surroundings
from qloom.worlds.local.world import LocalWorld, RealClock

REAL_TIME = True


def execute(main: Callable[[RealClock], Coroutine[Any, Any, Any]], began_us: int, at_us: int) -> Any:
    """Run in real time; a request to terminate is handled as Ctrl-C is: everything is given back."""

    async def guarded() -> Any:
        running = asyncio.ensure_future(main(RealClock(began_us)))
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        return await running

    return asyncio.run(guarded())


def make(surroundings: Surroundings, clock: RealClock) -> LocalWorld:
    """Slots of this machine, with a log for each worker."""
    logs = None
    if surroundings.directory is not None:
        logs = surroundings.directory / "logs"
        logs.mkdir(mode=0o700, exist_ok=True)
    return LocalWorld(surroundings.site, clock, surroundings.worker_set_up, logs, surroundings.record)
