"""The solver processes of one device: kept warm between tasks, killed when a task is stopped or takes too long."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from qloom.devices.child import Child, ChildDied
from qloom.devices.lend import ONE_THREAD, command
from qloom.model import JsonText

IDLE_S = 60.0  # a solver that nobody has used for so long is ended: some hold hundreds of megabytes


class Solvers:
    """As many processes as there are tasks at once, one task each."""

    def __init__(self, solver: str, time_limit_s: float, memory_mib: int | None = None) -> None:
        self._solver = solver
        self._time_limit_s = time_limit_s
        self._memory_mib = memory_mib
        self._idle: list[tuple[Child, asyncio.TimerHandle]] = []
        self._closing: set[asyncio.Task[None]] = set()

    async def solve(self, request: dict[str, Any], body: JsonText, *, crash: bool = False) -> Any:
        """The answer, unread; raises what the solver raised, or `ChildDied`. A cancelled caller kills the solver."""
        child = self._take()
        try:
            params = {"solver": self._solver, "request": request, "cpu_s": self._time_limit_s}
            asked = child.call("solve", params, self._time_limit_s, body)
            if crash:  # as a real one would: while the answer is awaited
                asking = asyncio.ensure_future(asked)
                while child.pid is None and not asking.done():  # noqa: ASYNC110  there is no event for it
                    await asyncio.sleep(0.001)
                child.kill()
                answer = await asking
            else:
                answer = await asked
        except (asyncio.CancelledError, ChildDied):
            child.kill()
            self._close_later(child)
            raise
        except BaseException:
            self._give_back(child)
            raise
        self._give_back(child)
        return answer

    def _take(self) -> Child:
        if self._idle:
            child, timer = self._idle.pop()
            timer.cancel()
            return child
        return Child(
            command(sys.executable, "qloom.devices.solver", self._memory_mib),
            what=f"the {self._solver} solver",
            environment=ONE_THREAD,
        )

    def _give_back(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        self._idle.append((child, loop.call_later(IDLE_S, self._retire, child)))

    def _retire(self, child: Child) -> None:
        self._idle = [entry for entry in self._idle if entry[0] is not child]
        self._close_later(child)

    def _close_later(self, child: Child) -> None:
        closing = asyncio.ensure_future(child.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End all processes."""
        for child, timer in self._idle:
            timer.cancel()
            self._close_later(child)
        self._idle = []
        await asyncio.gather(*self._closing, return_exceptions=True)
