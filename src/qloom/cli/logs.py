"""`qloom logs`: what the tasks and drivers of a run print, now and as it comes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from qloom.cli.around import ENDED, why_unfinished
from qloom.cli.look import RunArgument
from qloom.errors import JournalError
from qloom.journal import home
from qloom.journal.file import ended_as, read_events
from qloom.runs.live import LiveRun

LOOK_S = 0.2
PIECE_BYTES = 1 << 20
SUFFIXES = (".log", ".out")


def add_to(app: typer.Typer) -> None:
    """Register the command of this file."""
    app.command()(logs)


def logs(
    run: RunArgument = "last",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print more as it comes, until the run ends.")
    ] = False,
    task: Annotated[str, typer.Option(help="Only logs with this text in their name, such as j1/002 or kmeans.")] = "",
) -> None:
    """Print what the tasks of a run have printed. Each line begins with the name of its log: job, phase, task."""
    directory = home.find_run(run)
    read_events(directory)  # refuse what is not a run
    reader = LogReader(directory / "logs", task)
    if follow:
        _follow(directory, reader)
        return
    shown = _show(reader.read())
    if not _show(reader.rest()) and not shown:
        raise _without_logs(directory, task)


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
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                while data := file.read(PIECE_BYTES):
                    self._read[path] = file.tell()
                    *lines, self._begun[path] = (self._begun.get(path, b"") + data).split(b"\n")
                    yield from (self._line(path, line) for line in lines)
        except OSError:
            return  # it was removed meanwhile

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._directory).with_suffix(""))

    def _line(self, path: Path, text: bytes) -> str:
        return f"{self._name(path)} | {text.decode(errors='replace').rstrip()}"


def _show(lines: Iterable[str]) -> bool:
    shown = False
    for line in lines:
        print(line)
        shown = True
    sys.stdout.flush()
    return shown


def _follow(directory: Path, reader: LogReader) -> None:
    """Print until the run is over: it has ended, or no driver of it is left."""
    live, over = LiveRun(directory), False
    while not over:
        live.refresh()
        over = not live.goes_on  # before the last look: what was printed until then is there
        _show(reader.read())
        if not over:
            time.sleep(LOOK_S)
    _show(reader.rest())
    if (state := ended_as(read_events(directory))) in ENDED:
        print(f"run {directory.name}: {state}", file=sys.stderr)
    else:
        what, hint = why_unfinished(directory, read_events(directory))
        print(f"run {directory.name}: {what} ({hint})", file=sys.stderr)


def _without_logs(directory: Path, task: str) -> JournalError:
    run, events = directory.name, read_events(directory)
    if task:
        return JournalError(f"no log of run {run} has {task!r} in its name", hint=f"qloom logs {run} prints all")
    if ended_as(events) in ENDED:
        return JournalError(f"run {run} has no logs: nothing was printed", hint=f"qloom result {run}")
    what, _ = why_unfinished(directory, events)
    return JournalError(f"run {run} has no logs yet: {what}", hint=f"qloom logs {run} -f waits for them")
