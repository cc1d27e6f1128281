"""Commands around a run, wherever its driver lives: its result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from qloom.cli.look import RunArgument
from qloom.cli.tables import Json, Quiet
from qloom.errors import JournalError
from qloom.journal import home
from qloom.journal.event import Event
from qloom.journal.file import ended_as, has_writer, read_events, start_of
from qloom.journal.queries import handed_to
from qloom.programs.load import BUILT_IN, load_program

ENDED = ("done", "failed")


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    app.command()(result)


def result(run: RunArgument = "last", as_json: Json = False, quiet: Quiet = False) -> None:
    """Print the result of a run as `qloom run` does. A failed run has its errors and exit code, too."""
    from qloom.cli.running import show_outcome
    from qloom.runs.outcome import read_outcome

    directory = home.find_run(run)
    home.require_own(directory)
    events = read_events(directory)
    if ended_as(events) not in ENDED:
        what, hint = why_unfinished(directory, events)
        raise JournalError(f"run {directory.name} has no result yet: {what}", hint=hint)
    source = start_of(events).program or ""
    program = load_program(source) if source in BUILT_IN else None
    show_outcome(read_outcome(directory, events), as_json, quiet, program)


def why_unfinished(directory: Path, events: Sequence[Event]) -> tuple[str, str]:
    """Why a run has not ended, and what to do about it."""
    run, job = directory.name, handed_to(events)
    alive = has_writer(directory)
    if alive is not True and job is not None:
        from qloom.worlds.slurm.driver_job import look

        looked = look(job)
        if looked.stage == "waits":
            return f"Slurm job {job} waits: {looked.words}", f"qloom explain {run}"
        if looked.stage == "ended":
            return f"its driver, Slurm job {job}, has ended: {looked.words}", f"qloom resume {run}"
        alive = True if looked.stage == "holds" else alive
    if alive is False:
        state = ended_as(events)
        return "it was interrupted" if state == "interrupted" else "it was killed", f"qloom resume {run}"
    return "it is still running" if alive else "its driver is out of sight from here", f"qloom explain {run}"
