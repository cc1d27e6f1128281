"""Reads submitted tasks: small ones here and now, large ones in limited processes beside the broker.

A request of some megabytes takes seconds to parse and check, and while the event loop does so, nobody else is served
and no promise is kept. So a large body goes unread to one of a few warm processes; what comes back are a head, some
facts and the body as text. A body that takes more memory or CPU time to read than is allowed ends that process, not
the broker, and is refused; the process is replaced.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict, deque
from dataclasses import replace
from typing import Any, Protocol

from pydantic import ValidationError

from qloom.aio import TaskScope
from qloom.broker.api.forms import TaskForm
from qloom.broker.problems import Unavailable
from qloom.broker.requests import TaskRequest
from qloom.devices.child import Child, ChildDied, OutOfCpuTime
from qloom.devices.lend import ONE_THREAD, allow_cpu, answer_frames, command, frame
from qloom.errors import PayloadError, QloomError
from qloom.payloads.wire import head_of, payload_under

SMALL = 8192  # bytes: read within some milliseconds, whatever they are
HANGS_S = 600.0  # of wall-clock time: only for a process that is stuck


class WrongForm(PayloadError):
    """A body that is not JSON, or not a task: `place` names the field."""

    def __init__(self, message: str, *, hint: str | None = None, place: tuple[str | int, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.place = place


class TaskReader(Protocol):
    """Reads the body of a request."""

    async def read(self, user: str, body: bytes, key: str | None) -> TaskRequest:
        """The task in it, with its facts; `key` is used if the body has none. Raises `WrongForm`, `PayloadError`."""


class LoopReader:
    """Reads everything where it is called."""

    async def read(self, user: str, body: bytes, key: str | None) -> TaskRequest:
        """See `TaskReader.read`."""
        return read_request(body, key)


def read_request(body: bytes, key: str | None) -> TaskRequest:
    """See `TaskReader.read`. Facts are found when somebody asks for them."""
    try:
        request = TaskForm.model_validate_json(body).request()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise WrongForm(first["msg"], place=first["loc"]) from None
    return request if request.key is not None or key is None else replace(request, key=key)


class ReaderPool:
    """Some warm processes, each reading one body at a time; users take turns."""

    def __init__(self, processes: int = 2, memory_mib: int = 1024, cpu_s: float = 30.0) -> None:
        self._cpu_s, self._memory_mib = cpu_s, memory_mib
        self._idle = [
            Child(
                command(sys.executable, "qloom.broker.api.reading", memory_mib),
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

    async def read(self, user: str, body: bytes, key: str | None) -> TaskRequest:
        """See `TaskReader.read`."""
        if len(body) <= SMALL:
            return read_request(body, key)
        child = await self._turn(user)
        try:
            return await self._ask(child, body, key)
        finally:
            self._give_back(child)

    async def _ask(self, child: Child, body: bytes, key: str | None) -> TaskRequest:
        try:
            answer, text = await child.call("read", {"key": key, "cpu_s": self._cpu_s}, HANGS_S, body)
        except OutOfCpuTime:
            message = f"reading the payload takes more than {self._cpu_s:g} s of CPU time (limits.check_cpu_s)"
            raise PayloadError(message, hint="send a smaller one") from None
        except ChildDied as died:
            if "perhaps out of memory" not in died.message:
                raise Unavailable(f"the payload could not be read: {died.message}", hint="try again") from None
            message = f"reading the payload takes more than {self._memory_mib} MiB (limits.check_memory_mib)"
            raise PayloadError(message, hint="send a smaller one") from None
        if "wrong" in answer:
            raise WrongForm(answer["wrong"], place=tuple(answer["place"]))
        payload = payload_under(answer["payload"], text)
        return TaskRequest(payload, **answer["request"], known_digest=answer["digest"])

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
            pass  # the next request reports it

    async def close(self) -> None:
        """End the processes."""
        self._closed = True
        await self._starting.join()
        await asyncio.gather(*(child.close() for child in self._children))


def _answer(call: dict[str, Any], body: bytes) -> bytes:
    """In the process: everything that takes long, once."""
    head = {"n": call["n"]}
    try:
        allow_cpu(call["params"]["cpu_s"])
        request = read_request(body, call["params"]["key"])
        own = {name: value for name, value in vars(request).items() if name not in ("payload", "known_digest")}
        answer = {"request": own, "payload": head_of(request.payload), "digest": request.digest()}
        return frame({**head, "answer": answer}, request.payload.text)
    except WrongForm as error:
        return frame({**head, "answer": {"wrong": error.message, "place": error.place}}, "null")
    except QloomError as error:
        return frame({**head, "error": {"type": "PayloadError", "message": error.message, "hint": error.hint}})
    except MemoryError:
        said = {"message": "reading the payload takes more memory than it may (limits.check_memory_mib)"}
        return frame({**head, "error": {"type": "PayloadError", **said, "hint": "send a smaller one"}})
    except Exception as error:  # whatever a strange payload does to its reader, it is not queued
        said = {"message": f"the payload cannot be read ({type(error).__name__})"}
        return frame({**head, "error": {"type": "PayloadError", **said}})


if __name__ == "__main__":
    answer_frames(_answer)
