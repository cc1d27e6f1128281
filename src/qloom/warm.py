"""Warm starts on a node: a parent process that has only imported, and forks a worker whenever one is asked for.

Only where the site allows it (`keep_warm_s`): the parent outlives the job that started it, for so long after its last
worker. A worker that Slurm starts looks for the parent of its node and program, or starts it, and passes on its
standard input, output and error. It stays, so that the step lives as long as the forked worker, and the forked worker
dies with it. A parent that cannot fork safely refuses: then the worker imports by itself.

Run on nodes: this uses nothing else of qloom.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import select
import signal
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

SIZE, STATUS = struct.Struct("!Q"), struct.Struct("!i")
FORKED, REFUSED = b"f", b"n"
POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS")
NEVER_FORKED = ("jax", "jaxlib")  # their threads do not show in time, and a fork of them hangs
SetUp = Callable[[dict[str, Any]], object]
Serve = Callable[[bytes, str], object]  # the first message, and whether the start was warm or cold


def join_parent(message: bytes, options: dict[str, Any], set_up: SetUp, serve: Serve) -> None:
    """Have the node's parent process fork a worker that takes over from this one; returns if that cannot be."""
    place = _private_directory()
    if place is None:
        return
    path = os.path.join(place, _key(options))
    try:
        with _locked(f"{path}.lock"):
            connection, start = _connect(f"{path}.sock"), "warm"
            if connection is None:
                start = "cold"
                _start_parent(f"{path}.sock", options, set_up, serve)
                connection = _connect(f"{path}.sock")
        if connection is None:
            return
        asked = pickle.dumps((message, start, dict(os.environ), os.getcwd(), sorted(os.sched_getaffinity(0))))
        socket.send_fds(connection, [SIZE.pack(len(asked))], [0, 1, 2])
        connection.sendall(asked)
        if connection.recv(1) != FORKED:
            return
    except OSError:
        return
    _end_with(connection)


def _end_with(connection: socket.socket) -> NoReturn:
    """Wait for the forked worker, and end as it has ended."""
    said = connection.recv(STATUS.size)
    code = STATUS.unpack(said)[0] if len(said) == STATUS.size else 1
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(max(0, code))


def _private_directory() -> str | None:
    """Where the sockets of this user are on the node; None if somebody else has put something in its place."""
    place = os.path.join(tempfile.gettempdir(), f"qloom-warm-{os.getuid()}")
    try:
        os.mkdir(place, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return None
    found = os.lstat(place)
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return place if is_own else None


def _key(options: dict[str, Any]) -> str:
    """The same for workers of the same node, Python and program, as long as the program's own file does not change.

    Of the modules that it imports only the parent knows, and looks before each fork.
    """
    files = sorted(options["programs"].items())
    known = [os.environ.get("SLURMD_NODENAME", ""), sys.executable, options["path"], options.get("preload"), files]
    known += [_stamp(name) for _, name in files]
    return hashlib.blake2b(repr(known).encode(), digest_size=12).hexdigest()


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Of the workers that come at once, one starts the parent."""
    with open(path, "w", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _address(path: str) -> Iterator[str]:
    """A short name for a socket: the kernel takes 107 characters, and a site's TMPDIR may have more."""
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{os.path.basename(path)}"
    finally:
        os.close(directory)


def _connect(path: str) -> socket.socket | None:
    """A connection to a process of this user: it is sent the environment, and with it secrets."""
    connection = socket.socket(socket.AF_UNIX)
    with suppress(OSError), _address(path) as address:
        connection.connect(address)
        if _uid_of_peer(connection) == os.getuid():
            return connection
    connection.close()
    return None


def _uid_of_peer(connection: socket.socket) -> int:
    return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])


def _start_parent(path: str, options: dict[str, Any], set_up: SetUp, serve: Serve) -> None:
    """Start the parent as a daemon; connections wait until it has imported."""
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        with _address(path) as address:
            listener.bind(address)
        listener.listen(64)
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        try:
            os.setsid()
            if os.fork() == 0:
                _Parent(path, listener, options, serve).run(set_up)
        finally:
            os._exit(0)


def _own_files() -> Iterator[str]:
    """The files of all modules but those that are installed, which nobody edits."""
    for module in list(sys.modules.values()):
        file = vars(module).get("__file__")
        if isinstance(file, str) and not file.startswith((sys.prefix, sys.base_prefix)):
            yield file


def _stamp(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


class _Parent:
    """Imports once, then forks. It has one thread, and ends when it was of no use for `keep_warm_s`."""

    def __init__(self, path: str, listener: socket.socket, options: dict[str, Any], serve: Serve) -> None:
        self._path = path
        self._options = options
        self._serve = serve
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)  # the step must not wait for this process
        os.dup2(listener.detach(), 3)
        os.closerange(4, 4096)
        self._listener = socket.socket(fileno=3)
        self._workers: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that says when it has ended
        self._imported: dict[str, tuple[int, int] | None] = {}  # the user's own files, as they were imported
        self._is_stale = False

    def run(self, set_up: SetUp) -> None:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.chdir("/")
        os.environ.update(dict.fromkeys(POOLS, "1"))
        try:
            set_up(self._options)
            self._has_imported = True
        except BaseException:
            self._has_imported = False  # whoever imports by itself reports why
        self._imported = {file: _stamp(file) for file in _own_files()}
        while self._wait():
            if self._is_stale and not self._workers:
                return  # another parent may listen there by now
        if not self._is_stale:
            os.unlink(self._path)

    def _wait(self) -> bool:
        """Take the next worker or the end of one; False if there was neither for long."""
        waiting = select.poll()
        for source in (self._listener.fileno(), *self._workers):
            waiting.register(source, select.POLLIN)
        ready = waiting.poll(None if self._workers else self._options["keep_warm_s"] * 1000)
        for source, _ in ready:
            if source == self._listener.fileno():
                self._take(self._listener.accept()[0])
            else:
                self._reap(source)
        return bool(ready)

    def _may_fork(self) -> bool:
        if not self._is_stale and any(_stamp(file) != stamp for file, stamp in self._imported.items()):
            self._is_stale = True
            os.unlink(self._path)  # the next worker starts another parent
        is_alone = len(os.listdir("/proc/self/task")) == 1
        can_fork = self._has_imported and is_alone and not any(name in sys.modules for name in NEVER_FORKED)
        return can_fork and not self._is_stale

    def _take(self, connection: socket.socket) -> None:
        head, standard, _, _ = socket.recv_fds(connection, SIZE.size, 3)
        try:
            if _uid_of_peer(connection) != os.getuid() or len(head) < SIZE.size or not self._may_fork():
                connection.sendall(REFUSED)
                connection.close()
                return
            asked = connection.recv(SIZE.unpack(head)[0], socket.MSG_WAITALL)
            worker = os.fork()
            if worker == 0:
                self._become_worker(connection, standard, asked)
            connection.sendall(FORKED)
            self._workers[os.pidfd_open(worker)] = (worker, connection)
        except OSError:
            connection.close()
        finally:
            for file in standard:
                os.close(file)

    def _become_worker(self, connection: socket.socket, standard: list[int], asked: bytes) -> NoReturn:
        code = 1
        try:
            os.setsid()
            message, start, environment, directory, cores = pickle.loads(asked)  # noqa: S301  from the same user
            for number, file in enumerate(standard):
                os.dup2(file, number)
            fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)  # see below
            signal.signal(signal.SIGIO, signal.SIG_DFL)  # ends this process when the one in the step has gone
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(directory)
            os.sched_setaffinity(0, cores)
            keep = connection.detach()
            os.dup2(keep, 3)
            os.closerange(4, 4096)
            self._serve(message, start)
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()  # as any worker would
        finally:
            os._exit(code)

    def _reap(self, source: int) -> None:
        worker, connection = self._workers.pop(source)
        os.close(source)
        _, status = os.waitpid(worker, 0)
        try:
            os.killpg(worker, signal.SIGKILL)  # what it has left behind
        except ProcessLookupError:
            pass
        try:
            connection.sendall(STATUS.pack(os.waitstatus_to_exitcode(status)))
        except OSError:
            pass
        connection.close()
