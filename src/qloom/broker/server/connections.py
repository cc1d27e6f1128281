"""Where the broker listens, and which connections it accepts.

Of two brokers on one address, the second is refused; no file but a dead socket goes. So many connections are accepted
in all and of each peer, and never the descriptors that devices and the store need.

asyncio's own servers accept without a limit, and log each failure when the process has no descriptors left.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import logging
import os
import resource
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from qloom.aio import TaskScope, report_failure
from qloom.broker.auth.peers import Client, Proxies, client_of, peer_of
from qloom.broker.config import split_address
from qloom.broker.config_parts import LimitsPart
from qloom.broker.server.limits import Slots
from qloom.errors import InputError

BACKLOG = 2048
PROBE_S = 5.0

LOG = logging.getLogger("qloom.broker.server")
AT_ONCE = 100  # connections accepted before other work gets its turn
PAUSE_S = 0.5  # until accepting is tried again when there were no descriptors
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
FEWEST = 4  # connections, however few descriptors there are

MakeProtocol = Callable[[Client | None, Callable[[], None]], asyncio.Protocol]


@contextlib.contextmanager
def listening(addresses: Sequence[str], mode: int) -> Iterator[list[socket.socket]]:
    """Listening sockets, all of them or none."""
    with contextlib.ExitStack() as held:
        yield [held.enter_context(_listening(address, mode)) for address in addresses]


@contextlib.contextmanager
def _listening(address: str, mode: int) -> Iterator[socket.socket]:
    with contextlib.ExitStack() as held:
        try:
            if address.startswith("unix:"):
                path = Path(address.removeprefix("unix:"))
                path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                held.enter_context(_locked(path, address))
                listener = held.enter_context(_bound(path, address, mode))
            else:
                listener = held.enter_context(_bound_to_port(address))
            listener.listen(BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise _in_use(address) from None
            raise InputError(f"cannot listen on {address}: {error.strerror or error}") from None
        yield listener


@contextlib.contextmanager
def _locked(path: Path, address: str) -> Iterator[None]:
    """Hold the lock of a socket for as long as we listen there: looking and binding is one step for all brokers."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(path.with_name(f".{path.name}.lock"), flags, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(address) from None
        yield
    finally:
        os.close(file)


def _bound(path: Path, address: str, mode: int) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise InputError(f"cannot listen on {address}: that is a file, not a socket", hint="choose another path")
        if _answers(path):
            raise _in_use(address)
        path.unlink()  # of a broker that is dead
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        os.chmod(path, mode)
    except BaseException:
        listener.close()
        raise
    return listener


def _answers(path: Path) -> bool:
    """Whether a process listens there, be it a broker or not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except TimeoutError:
            return True  # it is busy
        return True


def _bound_to_port(address: str) -> socket.socket:
    host, port = split_address(address)
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except BaseException:
        listener.close()
        raise
    return listener


def _in_use(address: str) -> InputError:
    return InputError(
        f"cannot listen on {address}: another process does",
        hint="stop it, or choose another address to listen on",
    )


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
        self._starting = TaskScope(report_failure)
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
        await self._starting.join()

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
                self._starting.spawn(self._start(accepted, client))
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
