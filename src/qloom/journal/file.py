"""The journal of one run: JSON lines, appended by one process, never changed.

It may lie on Lustre or NFS, where a database must not. A line that was torn by a crash is ignored. Each event
has a number, the time at which it was observed (`at_us`, microseconds since the start of the run) and, where
the engine has a clock of its own, that clock's time (`engine_us`).
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from qloom.errors import JournalError
from qloom.journal import owner
from qloom.journal.event import Event, event_from
from qloom.journal.events import RunEnded, RunStarted
from qloom.journal.results import ResultStore, sync_directory
from qloom.world import Clock

VERSION = 1
FILE_NAME = "journal.jsonl"

_ENCODER = json.JSONEncoder(separators=(",", ":"))

written: list[Path] = []  # the directory of the run that this process has written to last, if any


class Journal:
    """The single writer. `directory` None keeps the events in memory (`events`)."""

    def __init__(self, directory: Path | None, clock: Clock, *, durable: bool = True, first: int = 0) -> None:
        self.clock = clock
        self.results = ResultStore(directory / "results" if directory else None, durable=durable)
        self.events: list[Event] | None = [] if directory is None else None
        self._listeners: list[tuple[Callable[[Event], None], tuple[type[Event], ...]]] = []
        self._listening: dict[type[Event], list[Callable[[Event], None]]] = {}  # to a kind, as far as it has come
        self._durable = durable
        self._number = first
        self._directory = directory
        self._file = None if directory is None else _open_for_writing(directory / FILE_NAME)
        if directory is not None:
            written[:] = [directory]
            for place in (directory, *directory.parents[:2]) if durable else ():  # QLOOM_HOME/runs/NAME
                sync_directory(place)

    def record(self, event: Event, *, durable: bool = False, job: str = "") -> None:
        """Append one event; `durable` ones are on the disk before this returns, with all results named so far."""
        event.stamp(self._number, self.clock.now_us(), job)
        self._number += 1
        if self.events is not None:
            self.events.append(event)
        elif self._file is not None:
            durable = durable and self._durable
            if durable:
                self.results.sync()
            os.write(self._file, _ENCODER.encode(event.as_dict()).encode() + b"\n")
            if durable:
                os.fsync(self._file)
        listening = self._listening.get(type(event))
        for listener in self._listening_to(type(event)) if listening is None else listening:
            listener(event)

    def _listening_to(self, kind: type[Event]) -> list[Callable[[Event], None]]:
        listening = [listener for listener, kinds in self._listeners if not kinds or kind in kinds]
        self._listening[kind] = listening
        return listening

    def listen(self, listener: Callable[[Event], None], *kinds: type[Event]) -> None:
        """Call `listener` with every event, or those of some kinds, after it was recorded."""
        self._listeners.append((listener, kinds))
        self._listening.clear()

    def recorder(self, job: str) -> Recorder:
        """A writer for the events of one job."""
        return Recorder(self, job)

    def close(self) -> None:
        """Let another process resume this run."""
        if self._file is not None and self._directory is not None:
            self.results.close()
            owner.release(self._directory)
            os.close(self._file)
            self._file = None


class Recorder:
    """Writes the events of one job, and keeps its results."""

    def __init__(self, journal: Journal, job: str) -> None:
        self._journal = journal
        self.job = job

    @property
    def is_on_disk(self) -> bool:
        """Whether what is recorded outlives this process."""
        return self._journal.events is None

    def record(self, event: Event, *, durable: bool = False) -> None:
        """Append one event of this job."""
        self._journal.record(event, durable=durable, job=self.job)

    def keep(self, value: Any) -> dict[str, Any]:
        """Store a result; the returned value goes into an event."""
        return self._journal.results.keep(value)


class ReplayedClock:
    """The clock of a journal that is written after the fact: it shows the time that somebody else has recorded."""

    real_time = False

    def __init__(self, epoch_us: int = 0) -> None:
        self._epoch_us = epoch_us
        self._now_us = 0

    def set(self, at_us: int) -> None:
        """Set the time of the next event; it never goes back."""
        self._now_us = max(self._now_us, at_us - self._epoch_us)

    def now_us(self) -> int:
        """Microseconds since the run began."""
        return self._now_us

    def sleep(self, seconds: float) -> Any:
        """Nothing waits by this clock."""
        raise NotImplementedError

    def call_later(self, seconds: float, then: Callable[[], None]) -> Any:
        """Nothing is called by it."""
        raise NotImplementedError

    def deadline(self, seconds: float, then: Callable[[], None]) -> Any:
        """Nothing is due by it either."""
        raise NotImplementedError


def _open_for_writing(path: Path) -> int:
    """Open for appending, alone, after cutting off a torn last line."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JournalError(f"cannot write the journal {path}: {error.strerror}") from None
    try:
        owner.claim(path.parent, is_locked=_lock(file, fcntl.LOCK_EX))
    except BlockingIOError:
        os.close(file)
        raise JournalError(
            f"{path.parent.name} is still running", hint="end it first; a journal has one writer"
        ) from None
    except JournalError:
        os.close(file)
        raise
    whole = path.read_bytes()
    end = whole.rfind(b"\n") + 1
    if end != len(whole):
        os.ftruncate(file, end)
    return file


def _lock(file: int, kind: int) -> bool:
    """Lock, or raise `BlockingIOError` if somebody else has; False if the file system has no locks."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def has_writer(directory: Path) -> bool | None:
    """Whether somebody writes the journal now; None if that is not visible from here."""
    try:
        with open(directory / FILE_NAME, "rb") as file:
            is_locked = _lock(file.fileno(), fcntl.LOCK_SH)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return None if owner.may_write(directory, is_locked=is_locked) else False


def await_writer(directory: Path, within_s: float) -> None:
    """Let whoever hands a run on finish its last lines."""
    until_s = time.monotonic() + within_s
    while has_writer(directory) is not False and time.monotonic() < until_s:
        time.sleep(0.05)


class JournalReader:
    """Reads a journal piece by piece, also while it is written: a torn last line is left until it is whole."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._offset = 0
        self._lines = 0

    def read(self) -> list[Event]:
        """The events that were added since the last call; what precedes a damaged line comes before the error."""
        try:
            with open(self._path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    raise JournalError(f"{self._path} is shorter than before", hint="the journal was cut or replaced")
                file.seek(self._offset)
                lines = file.read().split(b"\n")
        except OSError as error:
            raise JournalError(f"cannot read the journal {self._path}: {error.strerror}") from None
        events: list[Event] = []
        for line in lines[:-1]:  # what follows the last line break is torn
            try:
                fields = json.loads(line)
                if not self._lines:
                    _require_readable(self._path, fields)  # before the rest: a newer version may write other lines
                events.append(event_from(fields))
            except (AttributeError, KeyError, TypeError, ValueError):
                if events:
                    return events
                hint = "the journal was changed or damaged"
                raise JournalError(f"{self._path}, line {self._lines + 1}: no event", hint=hint) from None
            self._offset += len(line) + 1
            self._lines += 1
        return events


def read_events(directory: Path) -> list[Event]:
    """All events of a run, without a torn last line."""
    reader, events = JournalReader(directory), list[Event]()
    while more := reader.read():
        events += more
    if not events or not isinstance(events[0], RunStarted):
        path = directory / FILE_NAME
        raise JournalError(f"{path} holds no run", hint="the run was killed before it began; run it again")
    return events


def read_start(directory: Path) -> RunStarted | None:
    """The plan of a run from the first line of its journal; None if that cannot be read."""
    try:
        with open(directory / FILE_NAME, "rb") as file:
            first = event_from(json.loads(file.readline()))
    except (OSError, KeyError, TypeError, ValueError):
        return None
    return first if isinstance(first, RunStarted) else None


def _require_readable(path: Path, first: dict[str, Any]) -> None:
    version = first.get("version", 0)
    if not isinstance(version, int) or version > VERSION:
        raise JournalError(
            f"{path} has version {version}, this qloom reads up to {VERSION}", hint="use a newer qloom for this run"
        )


def start_of(events: Sequence[Event]) -> RunStarted:
    """The plan that a journal begins with."""
    first = events[0] if events else None
    if not isinstance(first, RunStarted):
        raise JournalError("the journal holds no run", hint="the run was killed before it began; run it again")
    return first


def ended_as(events: Sequence[Event]) -> str | None:
    """The state in which a run has ended; None if it has not, or was resumed since."""
    last = events[-1]
    return last.state if isinstance(last, RunEnded) else None
