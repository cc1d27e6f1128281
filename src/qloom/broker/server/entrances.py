"""How the parts of the service are entered: the credential that a request shows, and the form of a refusal.

Our own API is one part, each vendor's door another. The gate asks here before it reads a byte of a body; it knows no
vendor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from qloom.broker.problems import Malformed, TooManyRequests, TooSlow, Unauthenticated, Unavailable, status_of
from qloom.broker.server.server import App, Send
from qloom.errors import QloomError

TASKS = "/v1/tasks"

Headers = Mapping[bytes, bytes]


@dataclass(frozen=True)
class ErrorReply:
    """An error in the form that a client expects."""

    status: int
    body: bytes
    content_type: str = "application/json"


class Entrance(Protocol):
    """One part of the service."""

    path: str  # that its requests begin with
    single: tuple[bytes, ...]  # headers that a request may have once only

    def authorization(self, headers: Headers) -> str | None:
        """The credential of a request as an Authorization header; raises `Unauthenticated` if it has to have one."""

    def takes_tasks(self, path: str) -> bool:
        """Whether a request to this path may be as large as a task."""

    def reply(self, error: QloomError) -> ErrorReply:
        """An error in the form that clients of this part expect."""


class VendorEntrance(Entrance, Protocol):
    """A door: it answers the requests below its path itself."""

    def app(self) -> App:
        """Its routes, with errors in the vendor's form."""


class OwnEntrance:
    """Our own API: the caller may also be known by the socket, without a credential."""

    path = ""
    single: tuple[bytes, ...] = (b"authorization",)

    def authorization(self, headers: Headers) -> str | None:
        """See `Entrance.authorization`."""
        given = headers.get(b"authorization")
        return None if given is None else given.decode("latin-1")

    def takes_tasks(self, path: str) -> bool:
        """See `Entrance.takes_tasks`."""
        return path == TASKS

    def reply(self, error: QloomError) -> ErrorReply:
        """See `Entrance.reply`."""
        return ErrorReply(status_of(error), json.dumps(problem(error)).encode())


def problem(error: QloomError) -> dict[str, str | None]:
    """What every error of our own API looks like."""
    return {"error": type(error).__name__, "message": error.message, "hint": error.hint}


async def answer(send: Send, error: QloomError, entrance: Entrance) -> None:
    """Send an error. After one that leaves in doubt where the next request begins, the connection is closed."""
    reply = entrance.reply(error)
    headers = [(b"content-type", reply.content_type.encode()), (b"content-length", str(len(reply.body)).encode())]
    if isinstance(error, Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, TooManyRequests | Unavailable):
        headers.append((b"retry-after", b"1"))
    if isinstance(error, Malformed | TooSlow):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
