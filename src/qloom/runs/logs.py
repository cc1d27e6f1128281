"""What the tasks and drivers of a run print: one file for each, in the folder `logs` of the run."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

PIECE_BYTES = 1 << 20
SUFFIXES = (".log", ".out")


class LogReader:
    """Reads the logs of a run line by line, from where it has stopped before."""

    def __init__(self, directory: Path, wanted: str = "") -> None:
        self._directory = directory
        self._wanted = wanted
        self._read: dict[Path, int] = {}  # bytes of each log that were read
        self._begun: dict[Path, bytes] = {}  # lines that have no end yet

    def read(self) -> Iterable[str]:
        """The lines that are new, each with the name of its log."""
        for path in sorted(self._directory.rglob("*")):
            if path.suffix in SUFFIXES and self._wanted in self._name(path):
                yield from self._new_lines(path)

    def rest(self) -> Iterable[str]:
        """The lines that have no end, when no more of them will come."""
        for path, text in self._begun.items():
            if text:
                yield self._line(path, text)
        self._begun = {}

    def _new_lines(self, path: Path) -> Iterable[str]:
        try:
            with open(path, "rb", opener=_open_regular) as file:
                if os.fstat(file.fileno()).st_size < self._read.get(path, 0):  # it was begun anew
                    self._read[path], self._begun[path] = 0, b""
                file.seek(self._read.get(path, 0))
                while data := file.read(PIECE_BYTES):
                    self._read[path] = file.tell()
                    *lines, self._begun[path] = (self._begun.get(path, b"") + data).split(b"\n")
                    yield from (self._line(path, line) for line in lines)
        except OSError:
            return  # it was removed meanwhile, or is no log

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._directory).with_suffix(""))

    def _line(self, path: Path, text: bytes) -> str:
        return f"{self._name(path)} | {text.decode(errors='replace').rstrip()}"


def _open_regular(path: str, flags: int) -> int:
    """Follow no link out of the run, and wait for no pipe that has the name of a log."""
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is not a regular file")
    return file
