"""`qloom demo`: one hybrid program under all strategies, on this machine and in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from qloom.cli import tables
from qloom.cli.running import run_all
from qloom.journal import home
from qloom.journal.file import read_events
from qloom.programs.load import load_program
from qloom.runs.runner import Plan
from qloom.site import Site
from qloom.strategies import STRATEGIES

SHORT = {"classical_s": [0.77, 0.2, 0.2], "score_s": 0.54, "quantum_s": 1.2, "iterations": 2}
PATIENCE_S = 0.5  # as short as the program's times
PATIENT = ("malleable", "workflow", "pertask")


def add_to(app: typer.Typer) -> None:
    """Register the command of this file."""
    app.command()(demo)


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the page goes.")] = Path("qloom-demo.html"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the table.")] = False,
) -> None:
    """Run two jobs under every strategy, on this machine. Makes a table and a page with the timelines."""
    console = Console(highlight=False)
    if not quiet:
        console.print(
            "One hybrid program (classical tasks, a quantum task, a scoring task; twice),\n"
            "two jobs at once, three nodes, one QPU: first for real on this machine (about\n"
            "a minute), then in virtual time.\n"
        )
    rows = {world: _compare(world, quiet) for world in ("local", "virtual")}
    console.print(
        tables.side_by_side(
            "two jobs, three nodes, one QPU: held, for real and in virtual time", rows["local"], rows["virtual"]
        )
    )
    if not quiet:
        console.print(_reading())
    _draw(rows, output)
    console.print(f"\ntimelines: {output.resolve()}", soft_wrap=True)


def _compare(world: str, quiet: bool) -> list[dict[str, Any]]:
    plans = [
        Plan(
            load_program("phases"),
            SHORT,
            strategy=strategy,
            options={"patience_s": PATIENCE_S} if strategy in PATIENT else {},
            world=world,
            site=Site(nodes=3),
            jobs=2,
        )
        for strategy in STRATEGIES.built_in
    ]
    rows, errors = run_all(plans, quiet=quiet)
    if errors:
        raise errors[0]
    return rows


def _reading() -> str:
    return (
        "node-s: node-seconds held, what a cluster bills. QPU-s: QPU-seconds held. A job\n"
        "that holds less lets the other one run meanwhile. Next, try:\n"
        "  qloom compare phases --jobs 2 --world virtual --set quantum_s=60"
    )


def _draw(rows: dict[str, list[dict[str, Any]]], output: Path) -> None:
    from qloom.views.page import write_page

    timelines = [
        (f"{row['strategy']}, {row['world']}", read_events(home.find_run(row["run"])))
        for world_rows in rows.values()
        for row in world_rows
    ]
    titles = {"local": "On this machine", "virtual": "In virtual time"}
    left_out = ("run", "world", "jobs", "state")  # the same in every row of a table, or of no use on a page
    tables_shown = [
        (titles[world], [{name: row[name] for name in row if name not in left_out} for row in table])
        for world, table in rows.items()
    ]
    write_page("qloom demo", tables_shown, timelines, output)
