"""Accepting connections: so many in all and of each peer, and never the descriptors that devices and the store need.

asyncio's own servers accept without a limit, and log each failure when the process has no descriptors left.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import resource
import socket
from collections.abc import Callable, Sequence

from qloom.broker.config import LimitsPart
from qloom.broker.server.limits import Slots
from qloom.broker.server.peers import Client, Proxies, client_of, peer_of

LOG = logging.getLogger("qloom.broker.server")
AT_ONCE = 100  # connections accepted before other work gets its turn
PAUSE_S = 0.5  # until accepting is tried again when there were no descriptors
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
FEWEST = 4  # connections, however few descriptors there are

MakeProtocol = Callable[[Client | None, Callable[[], None]], asyncio.Protocol]


def refusal(status: str, error: str, message: str, hint: str | None = None) -> bytes:
    """An answer to somebody whose request is not read; the connection is closed after it."""
    body = json.dumps({"error": error, "message": message, "hint": hint}).encode()
    retry = "Retry-After: 1\r\n" if status.startswith("503") else ""
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"{retry}Connection: close\r\n\r\n"
    )
    return head.encode() + body


FULL = refusal("503 Service Unavailable", "Unavailable", "the broker has too many connections", "try again later")


def connections_allowed(limits: LimitsPart) -> int:
    """How many connections there may be at once; raises the process's own limit of descriptors if that is needed.

    Call this once devices and the store are open: what they hold now is theirs.
    """
    open_now = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = open_now + limits.reserved_files + limits.connections
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits.connections
    free = max(0, soft - open_now)
    allowed = max(FEWEST, free - min(limits.reserved_files, free // 2))
    LOG.warning("%d connections at once, not %d: the process may open %d files", allowed, limits.connections, soft)
    return allowed


class Connections:
    """The connections that are open. One peer never has all of them, except for a proxy, which serves many users."""

    def __init__(self, limits: LimitsPart, proxies: Proxies) -> None:
        total = connections_allowed(limits)
        self._slots = Slots(max(1, min(limits.peer_connections, total - total // 4)), total)
        self._proxies = proxies

    def admit(self, client: Client | None) -> bool:
        """Count a connection, or refuse it."""
        if self._slots.take(peer_of(client), limited=not self._proxies.include(client)):
            return True
        LOG.warning("connections of %s are refused: there are %d", peer_of(client), self._slots.count)
        return False

    def release(self, client: Client | None) -> None:
        """A connection is closed."""
        self._slots.release(peer_of(client))


class Listener:
    """Accepts the connections of one listening socket; has what uvicorn asks of a server."""

    def __init__(self, listening: socket.socket, connections: Connections, make_protocol: MakeProtocol) -> None:
        self._socket, self._connections, self._make_protocol = listening, connections, make_protocol
        self._loop = asyncio.get_running_loop()
        self._paused: asyncio.TimerHandle | None = None
        self._starting: dict[asyncio.Task[None], None] = {}
        listening.setblocking(False)
        self._resume()

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """Where it listens."""
        return (self._socket,)

    def close(self) -> None:
        """Accept nothing more."""
        self._loop.remove_reader(self._socket)
        if self._paused is not None:
            self._paused.cancel()

    async def wait_closed(self) -> None:
        """Wait until the last connection that was accepted has been handed over."""
        if self._starting:
            await asyncio.wait(self._starting)

    def _resume(self) -> None:
        self._paused = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    raise
                LOG.error("no connection can be accepted: %s", error.strerror)
                self._loop.remove_reader(self._socket)  # it would stay ready, and we would spin
                self._paused = self._loop.call_later(PAUSE_S, self._resume)
                return
            client = client_of(accepted)
            if self._connections.admit(client):
                task = self._loop.create_task(self._start(accepted, client))
                self._starting[task] = None
                task.add_done_callback(self._starting.pop)
            else:
                _refuse(accepted)

    async def _start(self, accepted: socket.socket, client: Client | None) -> None:
        released = False

        def release() -> None:
            nonlocal released
            if not released:
                released = True
                self._connections.release(client)

        try:
            await self._loop.connect_accepted_socket(lambda: self._make_protocol(client, release), accepted)
        except BaseException:
            release()
            accepted.close()
            raise


def _refuse(accepted: socket.socket) -> None:
    """Say why, if that takes no waiting. What was sent already is read, or the answer would be lost with it."""
    with accepted:
        accepted.setblocking(False)
        try:
            accepted.send(FULL)
            accepted.shutdown(socket.SHUT_WR)
            accepted.recv(65536)
        except OSError:
            pass
