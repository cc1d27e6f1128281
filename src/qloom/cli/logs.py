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
from qloom.runs.logs import LogReader

LOOK_S = 0.2


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
