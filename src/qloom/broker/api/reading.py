"""Reads submitted tasks: small ones here and now, large ones in limited processes beside the broker.

A request of some megabytes takes seconds to parse and check, and while the event loop does so, nobody else is served
and no promise is kept. So a large body goes unread to one of a few warm processes; what comes back are a head, some
facts and the body as text. A body that takes more memory or CPU time to read than is allowed ends that process, not
the broker, and is refused; the process is replaced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from pydantic import ValidationError

from qloom.broker.api.forms import TaskForm
from qloom.broker.api.pool import ChildPool, answer_call
from qloom.broker.requests import TaskRequest
from qloom.devices.lend import answer_frames
from qloom.errors import PayloadError
from qloom.payloads.wire import head_of, payload_under

SMALL = 8192  # bytes: read within some milliseconds, whatever they are


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
    """Reads large bodies in limited processes."""

    def __init__(self, processes: int = 2, memory_mib: int = 1024, cpu_s: float = 30.0) -> None:
        self._pool = ChildPool("qloom.broker.api.reading", processes, memory_mib, cpu_s)
        self.start, self.close = self._pool.start, self._pool.close

    async def read(self, user: str, body: bytes, key: str | None) -> TaskRequest:
        """See `TaskReader.read`."""
        if len(body) <= SMALL:
            return read_request(body, key)
        answer, text = await self._pool.call(user, "read", {"key": key}, body)
        if "wrong" in answer:
            raise WrongForm(answer["wrong"], place=tuple(answer["place"]))
        payload = payload_under(answer["payload"], text)
        return TaskRequest(payload, **answer["request"], known_digest=answer["digest"])


def _answer(call: dict[str, Any], body: bytes) -> bytes:
    """In the process: everything that takes long, once."""

    def read() -> tuple[dict[str, Any], str]:
        try:
            request = read_request(body, call["params"]["key"])
        except WrongForm as error:
            return {"wrong": error.message, "place": error.place}, "null"
        own = {name: value for name, value in vars(request).items() if name not in ("payload", "known_digest")}
        answer = {"request": own, "payload": head_of(request.payload), "digest": request.digest()}
        return answer, request.payload.text

    return answer_call(call, read)


if __name__ == "__main__":
    answer_frames(_answer)
