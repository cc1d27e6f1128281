"""Commands for runs that go on: `watch` in the terminal, `dashboard` in a browser, and `cancel`."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from qloom.cli.look import RunArgument
from qloom.cli.progress import watch_run
from qloom.cli.tables import Json
from qloom.errors import JournalError
from qloom.journal import home
from qloom.runs.live import LiveRun
from qloom.views.status import done_tasks


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    app.command()(watch)
    app.command()(dashboard)
    app.command()(cancel)


def watch(
    run: RunArgument = "last",
    once: Annotated[bool, typer.Option("--once", help="Show it as it stands now, and return.")] = False,
    as_json: Json = False,
) -> None:
    """Follow a run until it ends. Redrawn on a terminal, one line a minute elsewhere; --json shows it once."""
    directory = home.find_run(run)
    if as_json:
        live = LiveRun(directory)
        live.refresh()
        print(json.dumps(as_row(live)))
        return
    live = watch_run(directory, Console(highlight=False), once=once)
    if not once:
        exit_as(live)


def dashboard(
    listen: Annotated[
        str, typer.Option(help="127.0.0.1:PORT, or unix:PATH. Other machines reach it through ssh -L.")
    ] = "127.0.0.1:0",
) -> None:
    """Show runs in a browser as they go on. Prints a link that works once; Ctrl-C ends it, and no run."""
    from qloom.dashboard.serve import serve

    serve(listen, lambda line: print(line, flush=True))


def cancel(run: RunArgument) -> None:
    """Ask a run to stop, wherever its driver lives. It gives back what it holds, and can be resumed."""
    from qloom.runs.cancel import cancel as cancel_run

    print(cancel_run(run))


def exit_as(live: LiveRun) -> None:
    """Exit with 1 if a run that was watched did not end well."""
    if live.trouble is not None:
        raise JournalError(live.trouble)
    if live.state != "done":
        raise typer.Exit(1)


def as_row(live: LiveRun) -> dict[str, object]:
    """How a run stands, for `--json`."""
    estimate, start = live.estimate(), live.run.start
    row: dict[str, object] = {"run": live.name, "state": live.state, "program": start.program}
    row |= {"strategy": start.strategy, "world": start.world, "elapsed_s": live.now_us / 1e6}
    row |= {"calls": live.run.returned_calls, "tasks": done_tasks(live.run)}
    if estimate is not None:
        row |= {
            "done": round(estimate.done, 4),
            "left_s": round(estimate.left_s, 3),
            "estimated_from": estimate.basis,
        }
    return {**row, "problem": live.trouble, "sentences": live.sentences()}
