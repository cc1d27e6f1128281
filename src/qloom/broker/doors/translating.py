"""From a vendor's form to ours and back: small texts here and now, large ones in limited processes.

What came compressed is decompressed no further than a request may be large, so that a few bytes cannot stand for
gigabytes. Nothing here knows a vendor; doors are found by their name.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from qloom.broker.api.pool import ChildPool, answer_call
from qloom.broker.api.reading import SMALL
from qloom.broker.doors.registry import DOORS
from qloom.broker.problems import BY_NAME, TooLarge
from qloom.broker.requests import TaskRequest
from qloom.devices.lend import answer_frames
from qloom.errors import PayloadError, QloomError
from qloom.model import JsonText
from qloom.payloads.wire import head_of, payload_under

if TYPE_CHECKING:
    from qloom.broker.doors.door import Door

WINDOWS = {"deflate": zlib.MAX_WBITS, "gzip": zlib.MAX_WBITS | 16}
MOST_TASKS = 100  # of one request


def decompress(body: bytes, coding: str, max_bytes: int) -> bytes:
    """A body as it was before it was compressed; raises `PayloadError`, and `TooLarge` for more than `max_bytes`."""
    if coding in ("", "identity"):
        return body
    if coding not in WINDOWS:
        raise PayloadError(f"the content encoding {coding[:50]!r} is not known", hint="use deflate, gzip or none")
    machine = zlib.decompressobj(WINDOWS[coding])
    try:
        plain = machine.decompress(body, max_bytes + 1)
    except zlib.error:
        raise PayloadError(f"the body is not compressed with {coding}") from None
    if len(plain) > max_bytes:
        raise TooLarge(f"a request may have {max_bytes} bytes at most", hint="send a smaller payload")
    if not machine.eof or machine.unused_data:
        raise PayloadError(f"the body is not compressed with {coding}")
    return plain


class Translations(Protocol):
    """Translates for all doors."""

    async def read(
        self, door: str, user: str, body: bytes, settings: Mapping[str, Any]
    ) -> list[TaskRequest | QloomError]:
        """See `Door.read_tasks`; `settings` has `coding` and `max_bytes`, by which the body is decompressed."""

    async def write(self, door: str, user: str, result: JsonText, settings: Mapping[str, Any]) -> str:
        """See `Door.write_answer`."""


class LoopTranslations:
    """Translates everything where it is called."""

    async def read(
        self, door: str, user: str, body: bytes, settings: Mapping[str, Any]
    ) -> list[TaskRequest | QloomError]:
        """See `Translations.read`."""
        return read_tasks(DOORS.choose(door), body, settings)

    async def write(self, door: str, user: str, result: JsonText, settings: Mapping[str, Any]) -> str:
        """See `Translations.write`."""
        return DOORS.choose(door).write_answer(result, settings)


class PooledTranslations(LoopTranslations):
    """Translates what is large in a few warm processes."""

    def __init__(self, processes: int = 2, memory_mib: int = 1024, cpu_s: float = 30.0) -> None:
        self._pool = ChildPool("qloom.broker.doors.translating", processes, memory_mib, cpu_s)
        self.start, self.close = self._pool.start, self._pool.close

    async def read(
        self, door: str, user: str, body: bytes, settings: Mapping[str, Any]
    ) -> list[TaskRequest | QloomError]:
        """See `Translations.read`."""
        if len(body) <= SMALL:
            try:
                plain = decompress(body, settings["coding"], SMALL)
            except TooLarge:  # for the loop
                pass
            else:
                return await super().read(door, user, plain, {**settings, "coding": ""})
        params = {"door": door, "settings": dict(settings)}
        answer, text = await self._pool.call(user, "read", params, body)
        found: list[TaskRequest | QloomError] = []
        at = 0
        for one in answer:
            if "error" in one:
                found.append(BY_NAME.get(one["error"], PayloadError)(one["message"], hint=one["hint"]))
                continue
            payload = payload_under(one["payload"], text[at : at + one["size"]])
            found.append(TaskRequest(payload, **one["request"], known_digest=one["digest"]))
            at += one["size"]
        return found

    async def write(self, door: str, user: str, result: JsonText, settings: Mapping[str, Any]) -> str:
        """See `Translations.write`."""
        if len(result) <= SMALL:
            return await super().write(door, user, result, settings)
        params = {"door": door, "settings": dict(settings)}
        _, text = await self._pool.call(user, "write", params, result.encode())
        return str(text)


def read_tasks(door: type[Door], body: bytes, settings: Mapping[str, Any]) -> list[TaskRequest | QloomError]:
    """The tasks in a body that may be compressed."""
    found = door.read_tasks(decompress(body, settings["coding"], settings["max_bytes"]), settings)
    require_few(found)
    return found


def require_few(tasks: Sequence[object]) -> None:
    """Refuse a request with too many tasks; a door whose requests hold several asks before it reads them."""
    if len(tasks) > MOST_TASKS:
        raise TooLarge(f"a request may have {MOST_TASKS} tasks at most", hint="send several requests")


def _divided(found: TaskRequest | QloomError) -> tuple[dict[str, Any], str]:
    """Everything of a task but its body, and the body, whose length is `size`; raises what is wrong with it."""
    if isinstance(found, QloomError):
        raise found
    own = {name: value for name, value in vars(found).items() if name not in ("payload", "known_digest")}
    text = found.payload.text
    head = {"request": own, "payload": head_of(found.payload), "digest": found.digest(), "size": len(text)}
    return head, text


def _answer(call: dict[str, Any], body: bytes) -> bytes:
    """In a process."""
    params = call["params"]

    def work() -> tuple[Any, str]:
        door = DOORS.choose(params["door"])
        if call["method"] == "write":
            return None, door.write_answer(JsonText(body, "utf-8"), params["settings"])
        answer: list[dict[str, Any]] = []
        texts: list[str] = []
        for found in read_tasks(door, body, params["settings"]):
            try:
                head, text = _divided(found)
            except QloomError as error:
                head, text = {"error": type(error).__name__, "message": error.message, "hint": error.hint}, ""
            answer.append(head)
            texts.append(text)
        return answer, "".join(texts)

    return answer_call(call, work)


if __name__ == "__main__":
    answer_frames(_answer)
