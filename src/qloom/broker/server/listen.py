"""Where the broker listens. Of two brokers on one address, the second is refused; no file but a dead socket goes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from qloom.broker.config import split_address
from qloom.errors import InputError

BACKLOG = 2048
PROBE_S = 5.0


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
        hint="stop it, or choose another address with listen in broker.toml",
    )
