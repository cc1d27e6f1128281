"""How an emulated device comes to its answers: by solvers in processes of their own, under limits.

A heavy or crashing solver never blocks or stops the process that serves the device. Solvers are kept warm between
tasks, and killed when a task is stopped or takes too long. What is asked and answered is JSON, never a pickle.
Nothing here knows how long a device takes: it computes while that time passes.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from qloom.aio import TaskScope
from qloom.devices.calibration import CalibrationData
from qloom.devices.child import Child, ChildDied
from qloom.devices.lend import ONE_THREAD, command
from qloom.model import JsonText, Payload

IDLE_S = 60.0  # a solver that nobody has used for this long is ended: some hold hundreds of megabytes
MEMORY_MIB = 4096  # of one solver


class Answers(Protocol):
    """What an emulated device is given to answer with."""

    def seconds(self, payload: Payload) -> float | None:
        """How long the device takes for a payload, if that is known; None: as long as its time scale says."""

    def begin(self, token: str, payload: Payload, *, crash: bool = False) -> asyncio.Future[Any] | None:
        """Begin to compute an answer beside the time that passes; None: `compute` is called when that is over.

        Cancelling the future ends the computation. With `crash` whatever computes dies on the way.
        """

    def compute(self, token: str, payload: Payload) -> Any:
        """The answer to a payload for which nothing was begun."""

    async def close(self) -> None:
        """End all computations."""


class SolverProcesses:
    """As many processes as there are tasks at once, one task each."""

    def __init__(self, time_limit_s: float, memory_mib: int | None = None) -> None:
        self._time_limit_s = time_limit_s
        self._memory_mib = memory_mib
        self._idle: list[tuple[Child, asyncio.TimerHandle]] = []
        self._closing = TaskScope()

    async def solve(
        self, solver: str, request: Mapping[str, Any], body: JsonText, *, crash: bool = False
    ) -> JsonText:
        """The answer, unread; raises what the solver raised, or `ChildDied`. If cancelled, the solver is killed."""
        child = self._take()
        try:
            params = {"solver": solver, "request": dict(request), "cpu_s": self._time_limit_s}
            if crash:  # as a real one would: while the answer is awaited
                await child.start()
                asyncio.get_running_loop().call_soon(child.kill)
            answer: JsonText = await child.call("solve", params, self._time_limit_s, body)
        except (asyncio.CancelledError, ChildDied):
            child.kill()
            self._closing.spawn(child.close())
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
        words = command(sys.executable, "qloom.devices.solver", self._memory_mib)
        return Child(words, what="the solver", environment=ONE_THREAD)

    def _give_back(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        self._idle.append((child, loop.call_later(IDLE_S, self._retire, child)))

    def _retire(self, child: Child) -> None:
        self._idle = [(kept, timer) for kept, timer in self._idle if kept is not child]
        self._closing.spawn(child.close())

    async def close(self) -> None:
        """End the processes that nobody uses."""
        for child, timer in self._idle:
            timer.cancel()
            self._closing.spawn(child.close())
        self._idle = []
        await self._closing.join()


class SolverAnswers:
    """Answers of one solver as JSON, as the broker stores and sends them. The answer to a delay is its body."""

    def __init__(
        self,
        solver: str,
        limits: Mapping[str, int],
        time_limit_s: float,
        memory_mib: int | None,
        noise: Callable[[], CalibrationData] | None = None,  # the figures that noise is made of, when a task begins
    ) -> None:
        self._solver = solver
        self._noise = noise
        self._limits = dict(limits)
        self._processes = SolverProcesses(time_limit_s, memory_mib)
        self._solving = TaskScope()

    def seconds(self, payload: Payload) -> float | None:
        """See `Answers.seconds`."""
        return None

    def begin(self, token: str, payload: Payload, *, crash: bool = False) -> asyncio.Future[Any] | None:
        """See `Answers.begin`."""
        if payload.kind == "delay":
            return None
        request = request_of(payload, token, self._limits)
        if self._noise is not None:
            request["calibration"] = asdict(self._noise())
        return self._solving.start(self._processes.solve(self._solver, request, payload.text, crash=crash))

    def compute(self, token: str, payload: Payload) -> JsonText:
        """See `Answers.compute`."""
        return payload.text

    async def close(self) -> None:
        """See `Answers.close`."""
        await self._solving.aclose()
        await self._processes.close()


def request_of(payload: Payload, token: str, limits: Mapping[str, int] | None = None) -> dict[str, Any]:
    """What a solver is asked, without the body. A payload without a seed has one of its token: tasks differ."""
    seed = payload.options.get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int):
        seed = int.from_bytes(hashlib.sha256(token.encode()).digest()[:4], "big")
    return {
        "kind": payload.kind,
        "shots": payload.shots,
        "seed": seed,
        "options": dict(payload.options),
        "limits": dict(limits or {}),
    }
