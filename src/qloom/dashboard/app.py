"""The dashboard over HTTP: the page, streams of events, and the few requests that change something.

Only this machine's user is answered, under names of this machine. The page itself is public; everything else needs a
session, and what changes something also its token and our own page as the origin.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from qloom.aio import TaskScope, report_failure
from qloom.broker.auth.peers import PEER
from qloom.broker.problems import Forbidden, NotFound, TooLarge, Unauthenticated, status_of
from qloom.broker.server.protocol import check_request
from qloom.broker.server.server import Receive, Scope, Send
from qloom.dashboard.access import (
    BrowserSession,
    BrowserSessions,
    LoginKeys,
    has_token,
    is_local_name,
    is_same_origin,
    uid_of,
)
from qloom.dashboard.streams import Channel, LogsChannel, RunChannel, RunsChannel, Viewer
from qloom.errors import InputError, QloomError
from qloom.journal import home

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MOST_BODY = 4096
RUN_PATH = re.compile(r"/api/runs/([0-9A-Za-z][0-9A-Za-z._-]{0,99})(?:/([a-z-]+))?")
HINT = "open the link that qloom dashboard printed; it works once, and the same command prints another"

Json = dict[str, Any]
Action = Callable[[str, Json], Awaitable[Json]]  # the name of a run, and what the page sent


class DashboardApp:
    """The ASGI application. `actions` are what can be done to a run, by the last part of the path."""

    def __init__(self, keys: LoginKeys, actions: dict[str, Action]) -> None:
        self._keys = keys
        self._actions = actions
        self._sessions = BrowserSessions()
        self._channels: dict[str, Channel] = {}
        self._pages = _read_pages()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            await self._answer(scope, receive, send)
        except QloomError as error:
            problem = {"error": error.message, "hint": error.hint}
            await respond(send, status_of(error), "application/json", json.dumps(problem).encode())

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        check_request(raw, scope["http_version"], scope["headers"], (b"cookie", b"origin", b"x-qloom-token"))
        headers: dict[bytes, bytes] = dict(scope["headers"])
        _require_own_user(scope)
        if not is_local_name(headers.get(b"host", b"").decode("latin-1")):
            raise Forbidden("the dashboard answers to localhost only", hint="use ssh -L to reach it from elsewhere")
        method, path = scope["method"], scope["path"]
        if method == "GET" and path in self._pages:
            kind, content = self._pages[path]
            await respond(send, 200, f"{kind}; charset=utf-8", content)
        elif (method, path) == ("POST", "/login"):
            await self._log_in(headers, receive, send)
        else:
            session = self._session(headers)
            if method == "GET":
                await self._look(path, session, receive, send)
            elif method == "POST":
                await self._act(path, session, headers, receive, send)
            else:
                raise NotFound("there is nothing here")

    async def _log_in(self, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        if not is_same_origin(headers):
            raise Forbidden("a login comes from the dashboard's own page")
        key = (await _read_json(receive)).get("key")
        if not isinstance(key, str) or not self._keys.use(key):
            raise Unauthenticated("this link was used before or has expired", hint=HINT)
        await respond(send, 204, None, b"", {"Set-Cookie": self._sessions.begin()})

    def _session(self, headers: dict[bytes, bytes]) -> BrowserSession:
        session = self._sessions.find(headers.get(b"cookie", b"").decode("latin-1"))
        if session is None:
            raise Unauthenticated("this browser is not logged in", hint=HINT)
        if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
            raise Forbidden("another page may not look at the dashboard")
        return session

    async def _look(self, path: str, session: BrowserSession, receive: Receive, send: Send) -> None:
        if path == "/api/session":
            content = {"token": session.token, "actions": list(self._actions)}
            await respond(send, 200, "application/json", json.dumps(content).encode())
        elif path == "/api/runs":
            await self._stream(path, RunsChannel, session, receive, send)
        elif (found := RUN_PATH.fullmatch(path)) is not None and found[2] in (None, "logs"):
            directory = home.runs_directory() / require_run(found[1])
            kind = RunChannel if found[2] is None else LogsChannel
            await self._stream(path, lambda: kind(directory), session, receive, send)
        else:
            raise NotFound("there is nothing here")

    async def _act(
        self, path: str, session: BrowserSession, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        if not (is_same_origin(headers) and has_token(session, headers)):
            raise Forbidden("changes come from the dashboard's own page", hint="load the page again")
        found = RUN_PATH.fullmatch(path)
        if found is None or found[2] not in self._actions:
            raise NotFound("there is nothing here")
        run, content = require_run(found[1]), await _read_json(receive)
        try:
            answer = await self._actions[found[2]](run, content)
        except QloomError as error:  # an answer like any other: the request was right, and the run is as it is
            answer = {"problem": str(error)}
        await respond(send, 200, "application/json", json.dumps(answer).encode())

    async def _stream(
        self, path: str, make: Callable[[], Channel], session: BrowserSession, receive: Receive, send: Send
    ) -> None:
        """Send events until the browser goes or its session ends."""
        viewer, scope = Viewer(), TaskScope(report_failure)
        channel = self._channels.setdefault(path, make())
        channel.enter()

        async def notice_end() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            viewer.close()

        scope.spawn(notice_end())
        try:
            await channel.join(viewer)
            await _begin(send, 200, {"Content-Type": "text/event-stream"})
            async for message in viewer.messages():
                if not session.is_valid:
                    break
                await send({"type": "http.response.body", "body": message.encode(), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            if channel.leave(viewer) and self._channels.get(path) is channel:
                del self._channels[path]  # with all that was read of its journal
                await channel.close()
            await scope.aclose()

    def end_streams(self) -> None:
        """The dashboard stops: end what waits."""
        for channel in self._channels.values():
            channel.end()


def require_run(name: str) -> str:
    """A run of this user, by its whole id."""
    if name not in home.run_names():
        raise NotFound(f"there is no run {name}", hint="it may have been removed")
    home.require_own(home.runs_directory() / name)
    return name


def _require_own_user(scope: Scope) -> None:
    """Refuse other users of this machine: a port is open to all of them, and a browser's cookies go to every port."""
    client, server = scope.get("client"), scope.get("server")
    if client is None:
        return
    uid = client[1] if client[0] == PEER else uid_of(client, server) if server is not None else None
    if uid not in (None, 0, os.getuid()):
        raise Forbidden("this dashboard belongs to another user", hint="start one with qloom dashboard")


async def respond(send: Send, status: int, kind: str | None, body: bytes, more: dict[str, str] | None = None) -> None:
    """Send a whole answer."""
    headers = {"Content-Type": kind} if kind is not None else {}
    length = {"Content-Length": str(len(body))} if status != 204 else {}
    await _begin(send, status, headers | length | (more or {}))
    await send({"type": "http.response.body", "body": body})


async def _begin(send: Send, status: int, headers: dict[str, str]) -> None:
    lines = [(name.lower().encode(), value.encode()) for name, value in (HEADERS | headers).items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})


async def _read_json(receive: Receive) -> Json:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MOST_BODY:
            raise TooLarge(f"a request has {MOST_BODY} bytes at most")
        if not message.get("more_body"):
            break
    try:
        content = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InputError("a request is a JSON object")
    return content


def _read_pages() -> dict[str, tuple[str, bytes]]:
    """The files of the page, by their paths."""
    pages = {}
    for file in files("qloom.dashboard").joinpath("static").iterdir():
        kind = TYPES.get(os.path.splitext(file.name)[1])
        if kind is not None:
            pages["/" if file.name == "index.html" else f"/{file.name}"] = (kind, file.read_bytes())
    return pages
