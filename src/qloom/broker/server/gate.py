"""Before a request is parsed: whether it can be read in one way only, who sent it, how often they ask, how much.

The order matters. The header decides who asks; only then is a body read, with a deadline and within the memory that
this user and all users together may take.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from qloom.broker.auth.callers import Authenticator, RequestHead
from qloom.broker.auth.peers import peer_of
from qloom.broker.config_parts import LimitsPart
from qloom.broker.problems import TooLarge, TooSlow, Unauthenticated, Unavailable
from qloom.broker.requests import Caller
from qloom.broker.server.entrances import Entrance, OwnEntrance, answer
from qloom.broker.server.limits import ByteBudget, Rate, Slots
from qloom.broker.server.protocol import check_request
from qloom.broker.server.server import App, Message, Receive, Scope, Send
from qloom.errors import QloomError

OPEN_PATHS = ("/healthz", "/metrics", "/openapi.json")  # they reveal nothing of anybody
STREAMS = "/v1/events"
LISTS = ("/v1/tasks", "/v1/sessions", "/v1/queue", "/v1/devices")  # their answers may be long
LIST_BYTES = 32 * 1024  # of a list that count as another request: making them takes about as long as a small answer
WALKS = ("/v1/tasks", "/v1/sessions", "/v1/queue", "/metrics")  # GET looks at every task that is not over
WALK_TASKS = 2000  # that count as another request
FORM_BYTES = 64 * 1024  # of every other request: its form is parsed on the event loop
FORWARDED = (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip")


class Gate:
    """The outermost layer of the service."""

    def __init__(
        self,
        app: App,
        auth: Authenticator,
        limits: LimitsPart,
        proxy_header: str,
        count_tasks: Callable[[], int] = lambda: 0,  # that are not over
        doors: Sequence[Entrance] = (),
    ) -> None:
        self._app, self._auth, self._limits = app, auth, limits
        self._count_tasks = count_tasks
        self._own: Entrance = OwnEntrance()
        self._doors = tuple(doors)
        self._proxy_header = proxy_header.lower().encode()
        self._rate = Rate(limits.requests_per_s, limits.burst, time.monotonic)
        self._failures = Rate(limits.failures_per_s, limits.failures_burst, time.monotonic, "wrong credentials")
        self._requests = Slots(limits.requests_at_once)
        self._streams = Slots(limits.streams)
        self._bytes = ByteBudget(
            max(limits.body_bytes, limits.max_bytes), max(limits.user_body_bytes, limits.max_bytes)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through with `scope["caller"]` set, or answer it here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        answered = False
        entrance = self._entrance(scope["path"])

        async def noted_send(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            await self._pass(scope, receive, noted_send, entrance)
        except asyncio.CancelledError:  # by a server that stops and has waited long enough
            if answered:
                raise
            await answer(send, _stopping(), entrance)

    def _entrance(self, path: str) -> Entrance:
        return next((door for door in self._doors if path.startswith(f"{door.path}/")), self._own)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, entrance: Entrance) -> None:
        async with contextlib.AsyncExitStack() as held:
            try:
                body = await self._admit(scope, receive, held, entrance)
            except QloomError as error:
                await answer(send, error, entrance)
                return
            if body is not None:
                caller: Caller | None = scope.get("caller")
                if caller is not None:
                    send = self._while_allowed(caller, send, entrance)
                    send = self._charged(caller, send) if scope["path"] in LISTS else send
                await self._app(scope, _replay(body, receive), send)

    async def _admit(
        self, scope: Scope, receive: Receive, held: contextlib.AsyncExitStack, entrance: Entrance
    ) -> bytes | None:
        """The body of a request that may pass, or None if whoever sent it has gone; what it uses is in `held`."""
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        check_request(raw, scope["http_version"], scope["headers"], (self._proxy_header, *entrance.single))
        headers = dict(scope["headers"])
        peer = peer_of(scope.get("client"))
        if scope["path"] in OPEN_PATHS:
            self._take_rate(scope, peer)
            return b""
        with self._counted_failures(peer):
            identity = await self._auth.identify(self._head(scope, raw, headers, entrance))
        user = identity.caller.user
        self._take_rate(scope, user)
        identity.caller.require_method(str(scope["method"]))
        held.enter_context(self._requests.held(user, "requests"))
        if scope["path"] == STREAMS:
            held.enter_context(self._streams.held(user, "streams of events"))
        most = self._limits.max_bytes
        if not entrance.takes_tasks(scope["path"]):
            most = min(most, FORM_BYTES)
        body = await self._body(user, headers, receive, held, most)
        if body is not None:
            with self._counted_failures(peer):
                identity.verify_body(body)
            scope["caller"] = identity.caller
        return body

    def _take_rate(self, scope: Scope, who: str) -> None:
        """Count a request, and one that walks through a long queue as several."""
        self._rate.take(who)
        if scope["path"] in WALKS and scope["method"] == "GET":
            self._rate.charge(who, self._count_tasks() // WALK_TASKS)

    def _head(self, scope: Scope, raw_path: bytes, headers: Mapping[bytes, bytes], entrance: Entrance) -> RequestHead:
        query: bytes = scope.get("query_string", b"")
        target = raw_path + (b"?" + query if query else b"")
        named = headers.get(self._proxy_header)
        return RequestHead(
            str(scope["method"]),
            target.decode("latin-1"),
            scope.get("client"),
            entrance.authorization(headers),
            None if named is None else named.decode("latin-1"),
            any(name in headers for name in FORWARDED),
        )

    def _while_allowed(self, caller: Caller, send: Send, entrance: Entrance) -> Send:
        """Send an answer only to who may still have it: a request can wait for a minute."""
        refused = False

        async def send_if_allowed(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start":
                current = self._auth.current(caller)
                if current is None or not current.covers(caller):
                    refused = True
                    await answer(send, _withdrawn() if current is None else _changed(), entrance)
            if not refused:
                await send(message)

        return send_if_allowed

    def _charged(self, caller: Caller, send: Send) -> Send:
        """Count a long list as several requests: the loop serves nobody else while it is made."""

        async def send_and_charge(message: Message) -> None:
            self._rate.charge(caller.user, len(message.get("body", b"")) // LIST_BYTES)
            await send(message)

        return send_and_charge

    @contextlib.contextmanager
    def _counted_failures(self, peer: str) -> Iterator[None]:
        """Answer a peer's wrong credentials with 429 once there were too many; its right ones are always taken."""
        try:
            yield
        except Unauthenticated:
            self._failures.take(peer)
            raise

    async def _body(
        self, user: str, headers: Mapping[bytes, bytes], receive: Receive, held: contextlib.AsyncExitStack, most: int
    ) -> bytes | None:
        size = _size(headers, most)
        if size == 0:
            return await _read(receive, 0)
        within_s = self._limits.body_s
        deadline_s = asyncio.get_running_loop().time() + within_s
        try:
            async with asyncio.timeout_at(deadline_s):
                await held.enter_async_context(self._bytes.reserved(user, size))
        except TimeoutError:
            raise Unavailable("the broker reads too many requests at once", hint="send it again later") from None
        try:
            async with asyncio.timeout_at(deadline_s):
                return await _read(receive, most)
        except TimeoutError:
            raise TooSlow(f"the request did not arrive within {within_s:g} s", hint="send it again") from None


def _size(headers: Mapping[bytes, bytes], max_bytes: int) -> int:
    """Bytes of the body, or the most that it may have if it does not say."""
    if b"transfer-encoding" in headers:
        return max_bytes
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > max_bytes:
        raise _too_large(max_bytes)
    return int(length)


async def _read(receive: Receive, max_bytes: int) -> bytes | None:
    """The whole body, or None if the sender has gone."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        size += len(message.get("body", b""))
        if size > max_bytes:
            raise _too_large(max_bytes)
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"a request may have {max_bytes} bytes at most", hint="send a smaller payload")


def _withdrawn() -> Unauthenticated:
    return Unauthenticated("the credential was withdrawn while the request waited", hint="ask for another one")


def _stopping() -> Unavailable:
    return Unavailable("the broker stops, and could not finish this request", hint="send it again")


def _changed() -> Unavailable:
    """For clients a reason to ask again: what they may have by now is answered then."""
    return Unavailable("the rights of the caller changed while the request waited", hint="ask again")


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
