"""One page about some runs that needs nothing else: tables, the timeline as inline SVG, and how to read it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from qloom.errors import InputError
from qloom.journal.event import Event
from qloom.journal.history import read_history
from qloom.journal.results import write_atomically
from qloom.views.accounting import account
from qloom.views.picture import picture
from qloom.views.timeline import INK, Run

Table = tuple[str, Sequence[Mapping[str, Any]]]  # what it shows, and its rows

HEADINGS = {  # column -> heading, unit
    "wall_s": ("wall time", "s"),
    "turnaround_s": ("submission to end", "s"),
    "node_wait_s": ("wait for nodes", "s"),
    "qpu_wait_s": ("wait for a QPU", "s"),
    "node_s_held": ("nodes held", "node-seconds"),
    "node_s_busy": ("nodes busy", "node-seconds"),
    "qpu_s_held": ("QPU held", "QPU-seconds"),
    "qpu_s_busy": ("QPU busy", "QPU-seconds"),
    "vqpu_s_held": ("vQPU shares held", "share-seconds"),
    "spare_node_s": ("spare work", "node-seconds"),
    "program_s": ("the program itself", "s"),
    "bounded_slowdown": ("bounded slowdown", "times"),
    "energy_j": ("energy", "J"),
}
BRIEF = ("wall_s", "node_s_held", "node_s_busy", "qpu_s_held", "qpu_s_busy")
LEGEND = (
    ("Rows", "Each row is a node; the QPUs are below. All runs have the same time axis."),
    ("Colour", "The colour is the job, the same in every run."),
    ("Solid", "A task runs there, or the QPU executes: busy."),
    ("Hatched", "Held by the job but idle: paid for and not used."),
    ("Light, dotted edge", "Spare work: done early on a node that would have idled; it may be dropped."),
    ("Thin pale band", "A share of the QPU (vQPU) that the job holds; others hold shares at the same time."),
    ("Thin outline", "The job waits in line, for nodes or for the QPU above."),
    ("▼ and ✖", "The job is done; the job or a task failed or was stopped."),
    ("Grey band", "Nobody ran it: it was killed, and resumed later."),
)
STYLE = """
:root { color-scheme: light dark; --ink: #24262b; --soft: #5c6068; --line: #d9dbe0; --paper: #fff; --bar: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e9ec; --soft: #a4a8b0; --line: #3a3d44; --paper: #16181c; --bar: #56b4e9; }
  svg { filter: brightness(1.25); } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
thead th { vertical-align: bottom; white-space: normal; line-height: 1.25; }
th small { display: block; font-weight: normal; color: var(--soft); }
tr > :first-child { position: sticky; left: 0; background: var(--paper); }
.number { text-align: right; }
td.number { background: linear-gradient(to right, var(--bar) var(--part), transparent var(--part))
  .6rem bottom / calc(100% - 1.2rem) 3px no-repeat var(--paper); }
svg { width: 100%; height: auto; color: var(--ink); display: block; min-width: 44rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: 0; }
dt { font-weight: 600; } dd { margin: 0; color: var(--soft); overflow-wrap: anywhere; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
@media print { body { max-width: none; padding: 0; } svg { min-width: 0; } h2, figure { break-inside: avoid; }
  .wide { overflow: visible; } table { font-size: 11px; } th, td { padding: .2rem .35rem; } }
""".strip()


def page(title: str, tables: Sequence[Table], runs: Sequence[Run]) -> str:
    """The page. It has no script and fetches nothing; every name in it is escaped."""
    parts = [f"<h1>{escape(title)}</h1>"]
    parts += [f"<h2>{escape(caption)}</h2>\n{_table(rows)}" for caption, rows in tables if rows]
    if runs:
        parts.append(f'<h2>Timeline</h2>\n<figure class="wide" style="margin:0">{_inline_svg(runs)}</figure>')
        legend = "\n".join(f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>" for term, meaning in LEGEND)
        parts.append(f"<h2>How to read this</h2>\n<dl>\n{legend}\n</dl>")
    body = "\n".join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>\n{STYLE}\n</style>\n</head>\n'
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def brief(name: str, events: Sequence[Event]) -> str:
    """A run as a part of another page: its figures and, if Matplotlib is installed, its timeline."""
    figures = account(read_history(events)).as_dict()
    shown = {column: figures[column] for column in BRIEF if figures.get(column) is not None}
    heads = "".join(f"<th>{HEADINGS[column][0]}, {HEADINGS[column][1]}</th>" for column in shown)
    cells = "".join(f"<td>{value:.1f}</td>" for value in shown.values())
    table = f"<table><thead><tr>{heads}</tr></thead><tbody><tr>{cells}</tr></tbody></table>"
    try:
        return table + _inline_svg([(name, list(events))])
    except InputError:  # no Matplotlib, or nothing to draw
        return table


def draw_timeline(runs: Sequence[Run], path: Path, *, title: str = "qloom timeline") -> None:
    """Draw runs, each `(name, events)`, under one another on one time axis; the suffix says what kind of file."""
    if not runs:
        raise InputError("there is no run to draw", hint="make one with: qloom run PROGRAM")
    match path.suffix.lower():
        case ".svg" | ".png" as suffix:
            write_view(path, picture(runs, suffix[1:]))
        case ".html" | ".htm":
            write_page(title, account_tables(runs), runs, path)
        case suffix:
            raise InputError(f"cannot draw a {suffix or 'file without a suffix'}", hint="use .svg, .png or .html")


def write_page(title: str, tables: Sequence[Table], runs: Sequence[Run], path: Path) -> None:
    """The page as a file."""
    write_view(path, page(title, tables, runs).encode())


def write_view(path: Path, data: bytes) -> None:
    """Write a file for the user, all of it or nothing."""
    if not path.parent.is_dir():
        raise InputError(f"there is no directory {path.parent}", hint="make it, or name another file")
    try:
        write_atomically(path, data)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def account_tables(runs: Sequence[Run]) -> list[Table]:
    """What the runs held and used, one row each; for a single run of several jobs also one row a job."""
    histories = [(name, read_history(events)) for name, events in runs]
    tables: list[Table] = [
        ("Held and used", [{"run": name, **account(history).as_dict()} for name, history in histories])
    ]
    if len(histories) == 1 and len(histories[0][1].jobs) > 1:
        history = histories[0][1]
        tables.append(("Job by job", [{"job": job, **account(history, job).as_dict()} for job in history.jobs]))
    return tables


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A column that is empty in every row is left out; numbers carry a bar, so that differences are seen at once."""
    columns = [name for name in dict.fromkeys(name for row in rows for name in row) if _has_values(rows, name)]
    numeric = {name: all(_is_number(row.get(name)) for row in rows) for name in columns}
    head = "".join(_heading(name, numeric[name]) for name in columns)
    largest = {name: _largest([round(row[name], 1) for row in rows]) for name in columns if numeric[name]}
    body = []
    for row in rows:
        cells = [_number(n, row[n], largest[n]) if numeric[n] else _text(row.get(n)) for n in columns]
        body.append(f"<tr>{''.join(cells)}</tr>")
    lines = "\n".join(body)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table></div>'


def _has_values(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    optional = name in ("energy_j", "vqpu_s_held", "spare_node_s", "program_s")
    return any(row.get(name) is not None and (row[name] or not optional) for row in rows)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _heading(name: str, numeric: bool) -> str:
    words, unit = HEADINGS.get(name, (name.replace("_", " "), ""))
    small = f"<small>{escape(unit)}</small>" if unit else ""
    kind = ' class="number"' if numeric else ""
    return f"<th{kind}>{escape(words)}{small}</th>"


def _largest(values: list[float]) -> float:
    """What the bars of a column are drawn against; 0, and so no bars, where there is nothing to compare."""
    return max(values) if max(values) > min(values) >= 0 else 0


def _number(name: str, value: float, largest: float) -> str:
    part = round(100 * value / largest) if largest else 0
    text = f"{value:,.1f}" if name in HEADINGS or isinstance(value, float) else f"{value:,}"
    return f'<td class="number" style="--part:{part}%">{text}</td>'


def _text(value: Any) -> str:
    return f"<td>{escape('' if value is None else str(value))}</td>"


def _inline_svg(runs: Sequence[Run]) -> str:
    """The drawing, as wide as the page and in its text colour, so that it is readable on dark paper too."""
    text = picture(runs, "svg", transparent=True).decode()
    text = text[text.index("<svg") :].strip().replace(INK, "currentColor")
    names = ", ".join(name for name, _ in runs)
    label = escape(f"Timeline of {names}: nodes above, QPUs below", quote=True)
    opening, rest = text.split(">", 1)
    opening = re.sub(r'\s(width|height|version|xmlns(:xlink)?)="[^"]*"', "", opening)
    return f'{opening} role="img" aria-label="{label}">{rest}'
