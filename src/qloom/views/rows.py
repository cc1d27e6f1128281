"""What a timeline shows, without drawing it: one panel a run, one row a node or QPU, bars in seconds.

Below the nodes, and below each QPU, a thin strip shows who waits in line, so that a blank row is never a riddle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from qloom.journal.event import Event
from qloom.journal.events import (
    Granted,
    Grown,
    JobEnded,
    QuantumEnded,
    QuantumQueued,
    QuantumStarted,
    Requested,
    Resumed,
    Withdrawn,
)
from qloom.journal.handover import since_handed_on
from qloom.views.accounting import History, Interval, account, read_history

STRIP_LANE = 0.34  # height of a thin bar; a row of a node or a QPU has height 1
STRIP_MOST = 2.6  # many bars at once get thinner rather than the strip taller
NODES_SHOWN_IDLE = 64  # on a larger site, a node that was never used has no row

Run = tuple[str, Sequence[Event]]  # what to call it, and its journal


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
class Row:
    """One line of a panel."""

    label: str
    bars: list[Bar]
    height: float = 1.0

    @property
    def is_strip(self) -> bool:
        """Whether it is one of the thin ones."""
        return self.height != 1.0


@dataclass
class Panel:
    """One run."""

    title: str
    note: str
    rows: list[Row]
    jobs: list[str]
    ends: dict[str, tuple[float, str]]  # job -> when it ended, and how
    gaps: list[tuple[float, float]]  # while nobody ran it: killed, then resumed
    end_s: float


@dataclass
class Waits:
    """Who waited in line: for nodes (also to grow), and for each QPU."""

    nodes: list[Interval] = field(default_factory=list)
    qpus: dict[str, list[Interval]] = field(default_factory=dict)


def panel(run: Run) -> Panel:
    """Read one run."""
    title, events = run
    history = read_history(list(events))
    waits = read_waits(events)
    ends = {e.job: (e.at_us / 1e6, e.state) for e in events if isinstance(e, JobEnded)}
    rows = [_row(name, name, history, ("node",), ("task", "spare")) for name in _node_names(history)]
    rows += _strip("waiting", waits.nodes, "waiting")
    for name in _qpu_names(history, waits):
        rows.append(_row(name, name, history, ("qpu",), ("quantum",)))
        shares = [i for i in history.intervals if i.kind == "vqpu" and i.resource == name]
        rows += _strip("vQPU shares", shares, "share")
        rows += _strip("waiting", waits.qpus.get(name, []), "waiting")
    gaps = [(begin / 1e6, end / 1e6) for begin, end in history.gaps if end > begin]
    end_us = max((event.at_us for event in events), default=0)
    return Panel(title, _note(history), rows, history.jobs, ends, gaps, end_us / 1e6)


def _note(history: History) -> str:
    used = account(history)
    parts = [f"wall {used.wall_s:,.1f} s", f"nodes {used.node_s_held:,.1f} node-s held, {used.node_s_busy:,.1f} busy"]
    parts.append(f"QPU {used.qpu_s_held:,.1f} s held, {used.qpu_s_busy:,.1f} busy")
    if used.vqpu_s_held:
        parts.append(f"vQPU {used.vqpu_s_held:,.1f} share-s")
    return "  ·  ".join(parts)


def _node_names(history: History) -> list[str]:
    """Every node of a small site; of another, those that were used."""
    used = dict.fromkeys(i.resource for i in history.intervals if i.kind in ("node", "task", "spare"))
    count = history.start.site.get("nodes", 0)
    known = [f"n{number}" for number in range(1, count + 1)] if count <= NODES_SHOWN_IDLE else []
    strangers = [name for name in used if name not in known]
    return sorted(used, key=_by_number) if strangers else known


def _qpu_names(history: History, waits: Waits) -> list[str]:
    known = [qpu["name"] for qpu in history.start.site.get("qpus", ())]
    used = [i.resource for i in history.intervals if i.kind in ("qpu", "vqpu", "quantum")]
    return list(dict.fromkeys([*known, *used, *waits.qpus]))


def _by_number(name: str) -> list[tuple[int, str]]:
    """n2 before n10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _row(label: str, resource: str, history: History, held: tuple[str, ...], busy: tuple[str, ...]) -> Row:
    here = [i for i in history.intervals if i.resource == resource and i.end_us > i.begin_us]
    working = _in_lanes([i for i in here if i.kind in busy], {"spare": "spare"}, "busy")
    idle = []
    for hold in (i for i in here if i.kind in held):
        used = [(i.begin_us, i.end_us) for i in here if i.kind in busy and i.job == hold.job]
        idle += [Bar(hold.job, "idle", b / 1e6, e / 1e6) for b, e in _without(hold.begin_us, hold.end_us, used)]
    return Row(label, idle + working)


def _strip(label: str, intervals: list[Interval], style: str) -> list[Row]:
    bars = _in_lanes([i for i in intervals if i.end_us > i.begin_us], {}, style)
    if not bars:
        return []
    return [Row(label, bars, min(STRIP_MOST, STRIP_LANE * bars[0].lanes))]


def _in_lanes(intervals: list[Interval], styles: dict[str, str], style: str) -> list[Bar]:
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


def read_waits(events: Sequence[Event]) -> Waits:
    """Who waited in line, for how long; what is open ends with the journal, or where it was killed."""
    waits = Waits()
    open_waits: dict[tuple[str, str], Interval] = {}

    def end(job: str, key: str, at_us: int) -> None:
        if (wait := open_waits.pop((job, key), None)) is not None:
            wait.end_us = max(wait.begin_us, at_us)
            (waits.nodes if wait.kind == "nodes" else waits.qpus.setdefault(wait.resource, [])).append(wait)

    last_us = 0
    for event in since_handed_on(events):
        at_us: int = event.at_us
        job: str = event.job
        match event:
            case Requested():
                kind = "nodes" if event.nodes else "qpu"
                open_waits[job, event.lease] = Interval(event.device or "", job, kind, at_us, at_us)
            case QuantumQueued():
                open_waits[job, event.work] = Interval(event.device, job, "qpu", at_us, at_us, event.name)
            case Granted() | Grown() | Withdrawn():
                end(job, event.lease, event.when_us)
            case QuantumStarted() | QuantumEnded():
                end(job, event.work, at_us)
            case Resumed():
                for key in list(open_waits):
                    end(*key, last_us)
        last_us = max(last_us, at_us)
    for key in list(open_waits):
        end(*key, last_us)
    return waits
