"""A few warm processes beside the broker, each doing one piece of work at a time, under limits; users take turns.

What a stranger has sent may take seconds, or all memory, to read. Here it costs a process, never the event loop: the
process ends, the request is refused, and a new process takes its place.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from qloom.aio import TaskScope
from qloom.broker.problems import Unavailable
from qloom.devices.child import Child, ChildDied, OutOfCpuTime
from qloom.devices.lend import ONE_THREAD, allow_cpu, command, frame
from qloom.errors import PayloadError, QloomError

HANGS_S = 600.0  # of wall-clock time: only for a process that is stuck


class ChildPool:
    """Processes of one module, which answers frames."""

    def __init__(self, module: str, processes: int, memory_mib: int, cpu_s: float) -> None:
        self._cpu_s, self._memory_mib = cpu_s, memory_mib
        self._idle = [
            Child(
                command(sys.executable, module, memory_mib),
                what="the process that reads payloads",
                environment=ONE_THREAD,
            )
            for _ in range(processes)
        ]
        self._children = tuple(self._idle)
        self._lines: OrderedDict[str, deque[asyncio.Future[Child]]] = OrderedDict()  # of users, the next one first
        self._starting = TaskScope()
        self._closed = False

    async def start(self) -> None:
        """Start the first process, so that who comes first does not wait for it; the others start with their work."""
        await self._restart(self._idle[-1])

    async def call(self, user: str, method: str, params: dict[str, Any], body: bytes) -> Any:
        """What a process answers; raises `PayloadError` for what takes more than it may."""
        child = await self._turn(user)
        try:
            return await child.call(method, {**params, "cpu_s": self._cpu_s}, HANGS_S, body)
        except OutOfCpuTime:
            message = f"reading the payload takes more than {self._cpu_s:g} s of CPU time (limits.check_cpu_s)"
            raise PayloadError(message, hint="send a smaller one") from None
        except ChildDied as died:
            if "perhaps out of memory" not in died.message:
                raise Unavailable(f"the payload could not be read: {died.message}", hint="try again") from None
            message = f"reading the payload takes more than {self._memory_mib} MiB (limits.check_memory_mib)"
            raise PayloadError(message, hint="send a smaller one") from None
        finally:
            self._give_back(child)

    async def _turn(self, user: str) -> Child:
        """A process; who has none waiting goes before who has many."""
        if self._idle:
            return self._idle.pop()
        turn: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(user, deque()).append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(turn.result())
            raise

    def _give_back(self, child: Child) -> None:
        if child.pid is None and not self._closed:  # it died: a new one is to be warm when it is needed
            self._starting.spawn(self._restart(child))
        while self._lines:
            user, line = self._lines.popitem(last=False)
            while line and line[0].done():  # whoever it was has gone
                line.popleft()
            if line:
                line.popleft().set_result(child)
                if line:
                    self._lines[user] = line
                return
        self._idle.append(child)

    async def _restart(self, child: Child) -> None:
        try:
            await child.start()
        except ChildDied:
            pass  # whoever asks next gets the reason

    async def close(self) -> None:
        """End the processes."""
        self._closed = True
        await self._starting.join()
        await asyncio.gather(*(child.close() for child in self._children))


def answer_call(call: dict[str, Any], work: Callable[[], tuple[Any, str]]) -> bytes:
    """In a process: the frame with what `work` returns, within the CPU time of the call, or with a `PayloadError`."""
    head = {"n": call["n"]}
    try:
        allow_cpu(call["params"]["cpu_s"])
        answer, text = work()
        return frame({**head, "answer": answer}, text)
    except QloomError as error:
        return frame({**head, "error": {"type": "PayloadError", "message": error.message, "hint": error.hint}})
    except MemoryError:
        said = {"message": "reading the payload takes more memory than it may (limits.check_memory_mib)"}
        return frame({**head, "error": {"type": "PayloadError", **said, "hint": "send a smaller one"}})
    except Exception as error:  # whatever a strange payload does to its reader, it is not queued
        said = {"message": f"the payload cannot be read ({type(error).__name__})"}
        return frame({**head, "error": {"type": "PayloadError", **said}})
