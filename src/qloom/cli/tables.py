"""How commands show what they found: a table for people, rows for `--json`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from qloom.journal.history import History
from qloom.views.accounting import account

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the essential.")]

UNFINISHED = "unfinished"
COLUMNS = {  # heading -> figure
    "wall s": "wall_s",
    "node-s held": "node_s_held",
    "busy": "node_s_busy",
    "QPU-s held": "qpu_s_held",
    "busy ": "qpu_s_busy",
    "vQPU-s": "vqpu_s_held",
}


def table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> Table:
    """A plain table of some keys; numbers are aligned."""
    made = Table(pad_edge=False, padding=(0, 1, 0, 0), box=box.SIMPLE_HEAD)
    for column in columns:
        heading = column.removesuffix("_s") + (" s" if column.endswith("_s") else "")
        numbers = column.endswith("_s") or any(isinstance(row.get(column), int | float) for row in rows)
        made.add_column(heading, overflow="fold", justify="right" if numbers else "left")
    for row in rows:
        made.add_row(*(_cell(row.get(column)) for column in columns))
    return made


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    return ", ".join(value) if isinstance(value, list) else str(value)


def row(history: History, run: str, job: str | None = None) -> dict[str, Any]:
    """One row of `--json`: what was run, how that ended, and all figures."""
    start = history.start
    plan = {"strategy": start.strategy, "world": start.world, "jobs": start.jobs, "run": run}
    state = history.run.state_of(job) or UNFINISHED  # done, failed, interrupted or handed on
    values = {**plan, **({"job": job} if job else {}), "state": state, **account(history, job).as_dict()}
    if job is None and history.run.calibrations:
        values["calibrations"] = {device: list(known) for device, known in history.run.calibrations.items()}
    return values


def without_figures(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a failed run without its figures, which are not comparable with those of complete runs."""
    plan = ("strategy", "world", "jobs", "run", "job", "state")
    return {name: value if name in plan else None for name, value in row.items()}


def figures_table(title: str, rows: list[dict[str, Any]], first: str = "strategy") -> Table:
    """A table that fits 80 columns."""
    table = Table(title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0), box=box.SIMPLE_HEAD)
    table.add_column(first, no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading.strip(), justify="right", no_wrap=True)
    for values in rows:
        cells = [_figure(values[figure]) for figure in COLUMNS.values()]
        if values["wall_s"] is None:
            cells[0] = values["state"]
        table.add_row(str(values[first]), *cells)
    return table


def _figure(value: float | None) -> str:
    """One decimal; none for figures too long for the table."""
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 1e6 else f"{value:.0f}"


def side_by_side(title: str, left: list[dict[str, Any]], right: list[dict[str, Any]]) -> Table:
    """The same strategies in two worlds: wall time, and node-seconds and QPU-seconds held."""
    table = Table(title=title, title_justify="left", pad_edge=False, box=box.SIMPLE_HEAD)
    table.add_column("strategy", no_wrap=True)
    shown = {"wall s": "wall_s", "node-s": "node_s_held", "QPU-s": "qpu_s_held"}
    for heading in shown:
        for rows in (left, right):
            table.add_column(f"{heading}\n{rows[0]['world']}", justify="right", no_wrap=True)
    for one, other in zip(left, right, strict=True):
        cells = [f"{values[figure]:.1f}" for figure in shown.values() for values in (one, other)]
        table.add_row(str(one["strategy"]), *cells)
    return table
