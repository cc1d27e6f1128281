"""Before anything is parsed: how large a request is, who sent it, and how often they ask."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from qloom.broker.auth import Authenticator
from qloom.broker.problems import TooLarge, TooManyRequests, Unauthenticated, status_of
from qloom.errors import QloomError

LOG = logging.getLogger("qloom.broker")
OPEN_PATHS = ("/healthz", "/metrics", "/openapi.json")  # they tell nothing of anybody

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Rate:
    """So many requests a second for each user, and a burst of some more."""

    def __init__(self, per_s: float, burst: float, now_s: Callable[[], float]) -> None:
        self._per_s, self._burst, self._now_s = per_s, burst, now_s
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # user -> how many, as of when

    def take(self, user: str) -> None:
        """Count a request, or raise."""
        now_s = self._now_s()
        left, as_of_s = self._left.pop(user, (self._burst, now_s))
        left = min(self._burst, left + (now_s - as_of_s) * self._per_s)
        self._left[user] = (left - 1 if left >= 1 else left, now_s)
        if len(self._left) > 10_000:
            self._left.popitem(last=False)
        if left < 1:
            raise TooManyRequests(f"more than {self._per_s:g} requests a second", hint="wait a moment")


class Gate:
    """The outermost layer of the service."""

    def __init__(self, app: App, auth: Authenticator, rate: Rate, max_bytes: int) -> None:
        self._app, self._auth, self._rate, self._max_bytes = app, auth, rate, max_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Let a request through with `scope["caller"]` set, or answer it here."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            headers = {name.lower(): value for name, value in scope["headers"]}
            body = await self._read(headers.get(b"content-length"), receive)
            if body is None:
                return  # whoever it was has gone
            query = scope.get("query_string", b"").decode("latin-1")
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            path = raw.decode("latin-1") + (f"?{query}" if query else "")
            given = headers.get(b"authorization")
            authorization = given.decode("latin-1") if given is not None else None
            caller = await self._auth.caller(scope, authorization, path, body)
            self._rate.take(caller.user)
        except QloomError as error:
            await answer(send, error)
            return
        scope["caller"] = caller
        await self._app(scope, _replay(body, receive), send)

    async def _read(self, length: bytes | None, receive: Receive) -> bytes | None:
        if length is not None and (not length.isdigit() or int(length) > self._max_bytes):
            raise self._too_large()
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            size += len(message.get("body", b""))
            if size > self._max_bytes:
                raise self._too_large()
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> TooLarge:
        return TooLarge(f"a request may have {self._max_bytes} bytes at most", hint="send a smaller payload")


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def answer(send: Send, error: QloomError) -> None:
    """An error as JSON."""
    body = json.dumps(problem(error)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if isinstance(error, Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, TooManyRequests):
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status_of(error), "headers": headers})
    await send({"type": "http.response.body", "body": body})


def problem(error: QloomError) -> dict[str, str | None]:
    """What every error looks like."""
    return {"error": type(error).__name__, "message": error.message, "hint": error.hint}
