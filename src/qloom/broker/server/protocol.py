"""HTTP/1.1 on one connection: uvicorn's h11 protocol with deadlines, and without what can be read in two ways.

Requests that two programs could read differently are refused, so that no proxy sees another request than we do. h11
refuses most of them itself; here is what it lets through.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from qloom.broker.auth.peers import PEER, Client
from qloom.broker.config_parts import LimitsPart
from qloom.broker.problems import Malformed
from qloom.broker.server.connections import refusal

ONCE = (
    b"authorization",
    b"content-length",
    b"content-type",
    b"host",
    b"idempotency-key",
    b"last-event-id",
    b"transfer-encoding",
)
HEAD_BYTES = 16384  # h11 has the same limit, but only while the header is incomplete
AMBIGUOUS = re.compile(rb"\n[ \t]|(?<!\r)\n|\r(?!\n)")  # a folded line, or half an end of line
HEAD_END = re.compile(rb"\r?\n\r?\n")
HEX_OF_CONTROL = re.compile(rb"%(?:[01][0-9a-f]|7f)", re.IGNORECASE)

LOG = logging.getLogger("qloom.broker.server")
PROGRESS = 65536  # bytes of an answer that a client must read in each `stalled_s`


def check_head(head: bytes) -> None:
    """Refuse header lines that other programs may divide differently; `head` begins with a request line."""
    end = HEAD_END.search(head)
    lines = head[: end.end()] if end else head.removesuffix(b"\r")
    if len(lines) > HEAD_BYTES:
        raise Malformed(f"the header of a request has {HEAD_BYTES} bytes at most")
    if AMBIGUOUS.search(lines):
        raise Malformed("a header line is folded or does not end with CRLF")


def check_request(target: bytes, version: str, headers: Iterable[tuple[bytes, bytes]], once: Iterable[bytes]) -> None:
    """Refuse a request whose target, length or sender can be read in two ways."""
    seen: dict[bytes, bytes] = {}
    single = (*ONCE, *once)
    for name, value in headers:
        if name in seen and name in single:
            raise Malformed(f"two {name.decode('latin-1')} headers", hint="send one")
        seen[name] = value
    if version not in ("1.0", "1.1"):
        raise Malformed(f"HTTP/{version} is not spoken here", hint="use HTTP/1.1")
    if b"transfer-encoding" in seen and (b"content-length" in seen or version == "1.0"):
        raise Malformed("both a length and a transfer encoding, or the latter with HTTP/1.0", hint="send a length")
    if not target.startswith(b"/"):
        raise Malformed("the target of a request is a path", hint="such as /v1/tasks")
    if HEX_OF_CONTROL.search(target):
        raise Malformed("a path has no control characters")


class HttpProtocol(H11Protocol):
    """One connection. h11 is named here, since another parser that happens to be installed would accept more."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        limits: LimitsPart,
        client: Client | None,
        closed: Callable[[], None],
    ) -> None:
        super().__init__(config, state, {})
        self._limits, self._peer, self._closed = limits, client, closed
        self._header_due: asyncio.TimerHandle | None = None
        self._read_due: asyncio.TimerHandle | None = None
        self._unread = 0  # bytes of an answer when the client was last looked at

    def connection_made(self, transport: Any) -> None:
        """A client has connected: it has to send the header of a request in time."""
        super().connection_made(transport)
        if self._peer is not None and self._peer[0] == PEER:
            self.client = self._peer
        self._header_due = self.loop.call_later(self._limits.header_s, self._header_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by whomever."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        for timer in (self._header_due, self._read_due):
            if timer is not None:
                timer.cancel()
        self._closed()

    # Reading

    def handle_events(self) -> None:
        """Bytes have come, or the request before is answered."""
        if self.conn.their_state is h11.IDLE:
            try:
                check_head(self.conn.trailing_data[0])
            except Malformed as error:
                self.send_400_response(error.message)
                return
        super().handle_events()
        self._watch_header()

    def _watch_header(self) -> None:
        """Set a deadline from the first byte after a request, also for the rest of one that was answered early."""
        if self.cycle is not None and not self.cycle.response_complete:
            if self._header_due is not None:
                self._header_due.cancel()
                self._header_due = None
        elif self._header_due is None and (self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]):
            self._header_due = self.loop.call_later(self._limits.header_s, self._header_late)

    def _header_late(self) -> None:
        self._header_due = None
        if self.cycle is None or self.conn.their_state is h11.IDLE:
            late = f"the header of the request did not arrive within {self._limits.header_s:g} s"
            self.transport.write(refusal("408 Request Timeout", "TooSlow", late))
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, and read nothing more: nobody can say where the next request begins."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        self.transport.write(refusal("400 Bad Request", "Malformed", msg))
        self.transport.close()

    # Writing

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """The client has read nearly everything."""
        super().resume_writing()
        if self._read_due is not None:
            self._read_due.cancel()
            self._read_due = None

    def _watch_reader(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._read_due = self.loop.call_later(self._limits.stalled_s, self._check_reader)

    def _check_reader(self) -> None:
        if self.transport.get_write_buffer_size() > self._unread - PROGRESS:
            LOG.warning("a client that did not read its answer is cut off")
            self.transport.abort()
        else:
            self._watch_reader()
