"""What tasks print, as they print it: a process beside each worker copies it to a file for each task.

The worker's standard output and error are a pipe to that process, so that a file can be bounded whatever writes to
it, and a file is made only for a task that prints. Run on nodes: this uses nothing else of qloom, and of Python's
library only what is quick to import.
"""

from __future__ import annotations

import fcntl
import functools
import mmap
import os
import select
import sys
from typing import Any

LIMIT_BYTES = 16_000_000  # of one task, from its beginning
LAST_BYTES = 64_000  # that are kept of the rest
PIECE_BYTES = 1 << 16
LINGER_MS = 1000  # for what a dead worker's children may still print
FIONREAD = 0x541B  # of Linux: termios has it, and is slow to import
STDERR = 2


class OutputFile:
    """A file that is made when something is written, of bounded size: the beginning is kept, and the end.

    What cannot be written there goes to the standard error.
    """

    def __init__(self, path: str, limit: int = LIMIT_BYTES, last: int = LAST_BYTES) -> None:
        self._path = path
        self._room = limit
        self._keep = last
        self._file: int | None = None
        self._rest = bytearray()
        self._dropped = 0

    def write(self, data: bytes) -> None:
        """Append what a task has printed."""
        if self._file is None:
            self._file = self._open()
        now, later = data[: self._room], data[self._room :]
        self._put(now)
        self._room -= len(now)
        if later:
            self._rest += later
            self._dropped += max(0, len(self._rest) - self._keep)
            del self._rest[: -self._keep]

    def close(self) -> None:
        """Append the end of what there was no room for."""
        if self._rest:
            left_out = f"\nqloom: {self._dropped} bytes of output are left out here\n" if self._dropped else ""
            self._put(left_out.encode() + bytes(self._rest))
        if self._file not in (None, STDERR):
            os.close(self._file)
        self._file, self._rest = None, bytearray()

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            file = os.open(self._path, flags, 0o600)
            self._room = max(0, self._room - os.fstat(file).st_size)  # of an earlier attempt
            return file
        except OSError:
            return STDERR  # a node may not see the directory of the run

    def _put(self, data: bytes) -> None:
        try:
            while data and self._file is not None:
                data = data[os.write(self._file, data) :]
        except OSError:
            self._room = 0  # a full disk must not fail the task


class _SharedPage:
    """Memory of the worker and its copying process: whose output comes, and whether any is on its way to a file."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)  # zeros

    copying = property(lambda self: self._page[0] != 0, lambda self, value: self._set(0, value))
    has_file = property(lambda self: self._page[1] != 0, lambda self, value: self._set(1, value))

    def _set(self, place: int, value: bool) -> None:
        self._page[place] = int(value)

    @property
    def path(self) -> bytes:
        """The file of the task that runs; empty if none does."""
        return self._page[4 : 4 + int.from_bytes(self._page[2:4], "little")]

    @path.setter
    def path(self, path: bytes) -> None:
        path = path[: mmap.PAGESIZE - 4]
        self._page[2:4] = bytes(2)
        self._page[4 : 4 + len(path)] = path
        self._page[2:4] = len(path).to_bytes(2, "little")


class TaskOutput:
    """The worker's side: says whose output comes next. Made before anything is imported, because it forks.

    A task that prints nothing costs no switch to the other process.
    """

    def __init__(self) -> None:
        self._page = _SharedPage()
        self._printed, write = os.pipe()
        ending, self._ending = os.pipe()
        self._copied, copied = os.pipe()
        if os.fork() == 0:
            try:
                os.closerange(3, self._printed)  # what the worker reads and writes
                for unused in (write, self._ending, self._copied, 0):
                    os.close(unused)
                _copy(self._page, self._printed, ending, copied)
            finally:
                os._exit(0)
        for theirs in (ending, copied):
            os.close(theirs)
        for standard in (1, STDERR):
            os.dup2(write, standard)
        os.close(write)

    def begin(self, path: str) -> None:
        """What is printed from now on goes to this file."""
        self._page.path = os.fsencode(path)

    def end(self) -> None:
        """What follows belongs to no task; returns when everything that was printed is in its file."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                continue  # the task has closed or replaced it
        _flush_c()
        if _waiting_bytes(self._printed) or self._page.copying or self._page.has_file:  # in this order
            try:
                os.write(self._ending, b".")
                os.read(self._copied, 1)
            except OSError:
                pass  # the process was killed: output is lost, and no task
        self._page.path = b""


def _waiting_bytes(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, FIONREAD, bytes(4)), sys.byteorder)


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None)


def _flush_c() -> None:
    """Have C libraries write what they have buffered."""
    try:
        _libc().fflush(None)
    except (OSError, AttributeError):
        pass  # no C library that can be asked


def _copy(page: _SharedPage, printed: int, ending: int, copied: int) -> None:
    """Copy what is printed until the worker and all that it has started have gone.

    This process keeps the worker's standard output open: whoever sees that end knows that the files are complete.
    """
    os.setsid()  # what kills the worker and its children must leave what they have printed
    os.set_blocking(printed, False)
    waiting = select.poll()
    for source in (printed, ending):
        waiting.register(source, select.POLLIN)
    files: dict[bytes, OutputFile] = {}  # that of the task that runs
    patience_ms = None
    while ready := waiting.poll(patience_ms):
        page.copying = True
        is_open = _drain(printed, page, files)
        page.copying = False
        if not is_open:
            break
        if ending in dict(ready):
            if os.read(ending, 1):
                _close(files, page)
                os.write(copied, b".")
            else:
                waiting.unregister(ending)
                patience_ms = LINGER_MS
    _close(files, page)


def _drain(printed: int, page: _SharedPage, files: dict[bytes, OutputFile]) -> bool:
    """Copy all that is in the pipe; False if nobody can write to it any more."""
    while True:
        try:
            data = os.read(printed, PIECE_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        if path := page.path:
            if path not in files:
                files[path] = OutputFile(os.fsdecode(path))
                page.has_file = True
            files[path].write(data)
        else:
            os.write(STDERR, data)


def _close(files: dict[bytes, OutputFile], page: _SharedPage) -> None:
    for file in files.values():
        file.close()
    files.clear()
    page.has_file = False
