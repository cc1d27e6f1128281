"""What a timeline shows, without drawing it: one panel a run, one row a node or QPU, bars in seconds.

Below the nodes, and below each QPU, a thin strip shows who waits in line, so that a blank row is never a riddle.
Each kind of bar has its looks here, and the legend that explains them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qloom.journal.event import Event
from qloom.journal.history import History, read_history
from qloom.journal.intervals import Interval, Wait
from qloom.views.accounting import account

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STRIP_LANE = 0.34  # height of a thin bar; a row of a node or a QPU has height 1
STRIP_MOST = 2.6  # many bars at once get thinner rather than the strip taller
NODES_SHOWN_IDLE = 64  # on a larger site, a node that was never used has no row

Run = tuple[str, Sequence[Event]]  # what to call it, and its journal
INK = "#24262b"  # text and lines; a page may replace it by its own colour
GREY = "#808080"
# Okabe and Ito's colours, distinct for people with any colour vision; brown and indigo for their black and yellow.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d31", "#332288")
LEGEND_COLUMNS = 8
JOBS_IN_LEGEND = 40
STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "busy": ("a task runs", {"linewidth": 0.5}),
    "spare": ("spare work runs", {"linewidth": 0.9, "linestyle": ":"}),
    "idle": ("held but idle", {"linewidth": 0.5}),
    "share": ("share of a QPU held", {"linewidth": 0.5}),
    "waiting": ("waits in line", {"linewidth": 0.9}),
}
OPACITY = {"busy": 1.0, "spare": 0.45, "idle": 0.13, "share": 0.35, "waiting": 0.0}


@dataclass
class Bar:
    """Something that one job held, used or waited for."""

    job: str
    style: str  # "busy" | "spare" | "idle" | "share" | "waiting"
    begin_s: float
    end_s: float
    label: str = ""
    failed: bool = False
    lane: int = 0
    lanes: int = 1


@dataclass
class TimelineRow:
    """One line of a panel."""

    label: str
    bars: list[Bar]
    height: float = 1.0

    @property
    def is_thin(self) -> bool:
        """Whether it is one of the thin ones."""
        return self.height != 1.0


@dataclass
class Panel:
    """One run."""

    title: str
    note: str
    rows: list[TimelineRow]
    jobs: list[str]
    ends: dict[str, tuple[float, str]]  # job -> when it ended, and how
    gaps: list[tuple[float, float]]  # while nobody ran it: killed, then resumed
    end_s: float


def panel(run: Run) -> Panel:
    """Read one run."""
    title, events = run
    history = read_history(events)
    on: dict[str, list[Interval]] = {}
    for interval in history.intervals:
        for resource in interval.resources:
            on.setdefault(resource, []).append(interval)
    rows = [_row(name, on.get(name, []), ("node",), ("task", "spare")) for name in _node_names(history)]
    rows += _strip("waiting", [wait for wait in history.waits if wait.kind == "nodes"], "waiting")
    for name in _qpu_names(history):
        rows.append(_row(name, on.get(name, []), ("qpu",), ("quantum",)))
        rows += _strip("vQPU shares", [i for i in on.get(name, []) if i.kind == "vqpu"], "share")
        rows += _strip("waiting", [w for w in history.waits if w.kind == "qpu" and w.device == name], "waiting")
    ended = [job.last_ended for job in history.run.jobs.values() if job.last_ended is not None]
    ends = {event.job: (event.at_us / 1e6, event.state) for event in ended}
    gaps = [(begin / 1e6, end / 1e6) for begin, end in history.gaps if end > begin]
    return Panel(title, _note(history), rows, history.jobs, ends, gaps, history.run.now_us / 1e6)


def _note(history: History) -> str:
    used = account(history)
    parts = [f"wall {used.wall_s:,.1f} s", f"nodes {used.node_s_held:,.1f} node-s held, {used.node_s_busy:,.1f} busy"]
    parts.append(f"QPU {used.qpu_s_held:,.1f} s held, {used.qpu_s_busy:,.1f} busy")
    if used.vqpu_s_held:
        parts.append(f"vQPU {used.vqpu_s_held:,.1f} share-s")
    return "  ·  ".join(parts)


def _node_names(history: History) -> list[str]:
    """Every node of a small site; of another, those that were used."""
    working = [i for i in history.intervals if i.kind in ("node", "task", "spare")]
    used = dict.fromkeys(node for interval in working for node in interval.resources)
    count = history.start.site.get("nodes", 0)
    known = [f"n{number}" for number in range(1, count + 1)] if count <= NODES_SHOWN_IDLE else []
    strangers = [name for name in used if name not in known]
    return sorted(used, key=by_number) if strangers else known


def _qpu_names(history: History) -> list[str]:
    known = [qpu["name"] for qpu in history.start.site.get("qpus", ())]
    used = [i.resource for i in history.intervals if i.kind in ("qpu", "vqpu", "quantum")]
    awaited = [wait.device for wait in history.waits if wait.kind == "qpu"]
    return list(dict.fromkeys([*known, *used, *awaited]))


def by_number(name: str) -> list[tuple[int, str]]:
    """n2 before n10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _row(label: str, on: list[Interval], held: tuple[str, ...], busy: tuple[str, ...]) -> TimelineRow:
    here = [i for i in on if i.end_us > i.begin_us]
    working = _in_lanes([i for i in here if i.kind in busy], {"spare": "spare"}, "busy")
    idle = []
    for hold in (i for i in here if i.kind in held):
        used = [(i.begin_us, i.end_us) for i in here if i.kind in busy and i.job == hold.job]
        idle += [Bar(hold.job, "idle", b / 1e6, e / 1e6) for b, e in _without(hold.begin_us, hold.end_us, used)]
    return TimelineRow(label, idle + working)


def _strip(label: str, intervals: Sequence[Interval | Wait], style: str) -> list[TimelineRow]:
    bars = _in_lanes([i for i in intervals if i.end_us > i.begin_us], {}, style)
    if not bars:
        return []
    return [TimelineRow(label, bars, min(STRIP_MOST, STRIP_LANE * bars[0].lanes))]


def _in_lanes(intervals: Sequence[Interval | Wait], styles: dict[str, str], style: str) -> list[Bar]:
    """Bars that overlap lie one above the other."""
    free_at_us: list[int] = []
    bars = []
    for interval in sorted(intervals, key=lambda i: (i.begin_us, i.end_us, i.job, i.label)):
        free = [lane for lane, at_us in enumerate(free_at_us) if at_us <= interval.begin_us]
        lane = free[0] if free else len(free_at_us)
        free_at_us[lane : lane + 1] = [interval.end_us]
        kind = styles.get(interval.kind, style)
        begin_s, end_s = interval.begin_us / 1e6, interval.end_us / 1e6
        bars.append(Bar(interval.job, kind, begin_s, end_s, interval.label, interval.state == "failed", lane))
    for bar in bars:
        bar.lanes = len(free_at_us)
    return bars


def _without(begin_us: int, end_us: int, used: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of a time span that are not in `used`."""
    left = []
    for used_begin, used_end in sorted(used):
        if begin_us < used_begin < end_us:
            left.append((begin_us, used_begin))
        begin_us = max(begin_us, used_end) if used_begin < end_us else begin_us
    return [*left, (begin_us, end_us)] if begin_us < end_us else left


def looks_of(style: str, colour: str) -> list[dict[str, Any]]:
    """What is drawn for a style, one over the other."""
    edge = colour
    if style == "busy":  # darker, to separate tasks that follow each other
        edge = "#" + "".join(f"{int(colour[place : place + 2], 16) * 3 // 4:02x}" for place in (1, 3, 5))
    looks: list[dict[str, Any]] = [{"facecolor": (colour, OPACITY[style]), "edgecolor": edge, **STYLES[style][1]}]
    if style == "idle":  # apart from the pale colour, as in SVG the opacity of that would fade the hatching too
        looks.append({"facecolor": "none", "edgecolor": colour, "linewidth": 0.0, "hatch": "/////"})
    return looks


def job_entries(colours: dict[str, str]) -> list[tuple[str, Any]]:
    """The jobs by colour."""
    from matplotlib.patches import Patch

    entries = [
        (f"job {job}", Patch(**looks_of("busy", colour)[0])) for job, colour in list(colours.items())[:JOBS_IN_LEGEND]
    ]
    if len(colours) > JOBS_IN_LEGEND:
        entries.append((f"and {len(colours) - JOBS_IN_LEGEND} more", Patch(alpha=0.0)))
    return entries


def style_entries(panels: Sequence[Panel]) -> list[tuple[str, Any]]:
    """What the ways to draw mean, in grey: they are the same for every job. Only what is in the picture."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    seen = {bar.style: True for shown in panels for row in shown.rows for bar in row.bars}
    entries: list[tuple[str, Any]] = []
    for style, (name, _) in STYLES.items():
        if style in seen:
            entries.append((name, tuple(Patch(**look) for look in looks_of(style, GREY))))
    marks = {"v" if state == "done" else "X": True for shown in panels for _, state in shown.ends.values()}
    for marker, name in (("v", "job is done"), ("X", "failed or stopped")):
        if marker in marks:
            entries.append((name, Line2D([], [], marker=marker, linestyle="", color=GREY, markersize=6)))
    if any(shown.gaps for shown in panels):
        entries.append(("killed, then resumed", Patch(facecolor=(GREY, 0.25))))
    return entries


def lines_of(entries: list[tuple[str, Any]]) -> int:
    """How many lines these take."""
    return -(-len(entries) // LEGEND_COLUMNS)


def add_legend(figure: Figure, entries: list[tuple[str, Any]], top: float) -> None:
    """Outside the axes, where it hides nothing."""
    if entries:
        figure.legend(
            handles=[handle for _, handle in entries],
            labels=[label for label, _ in entries],
            loc="upper center",
            bbox_to_anchor=(0.5, top),
            ncols=min(LEGEND_COLUMNS, len(entries)),
            frameon=False,
            borderaxespad=0.0,
            borderpad=0.2,
            handlelength=2.0,
            columnspacing=1.4,
        )
