"""The timeline of a run as it grows: bars that open, end or vanish, in rows of nodes, QPUs, shares and waits.

The rows and the bars are those of `timeline.py`, which reads a run as a whole; here the fold goes on, and `catch_up`
returns what has changed since it was last called. What was open and has ended keeps its number, so a page that shows
a bar lets it grow and then end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from qloom.journal.events import Requested
from qloom.journal.fold import RunState
from qloom.journal.intervals import FOREVER_US, Interval, Wait
from qloom.views.summary import counted, printable
from qloom.views.timeline import by_number

BUSY = ("task", "spare", "quantum")
ROWS = {"node": "node", "task": "node", "spare": "node", "qpu": "qpu", "quantum": "qpu", "vqpu": "share"}
ORDER = ("node", "nodes", "qpu", "share", "queue")  # "nodes" and "queue" are the lines of those who wait
LABELS = {"nodes": "waiting", "share": "vQPU shares", "queue": "waiting"}

Key = tuple[int, str]  # an interval, and one of its resources


@dataclass
class BarRow:
    """A node, a QPU, or the thin strip of those who share or wait for one."""

    number: int
    kind: str
    resource: str
    free_us: list[int] = field(default_factory=list)  # when each lane is free; bars that overlap get separate lanes

    def lane_for(self, begin_us: int, end_us: int) -> int:
        """The first lane that is free then."""
        for lane, free_us in enumerate(self.free_us):
            if free_us <= begin_us:
                self.free_us[lane] = end_us
                return lane
        self.free_us.append(end_us)
        return len(self.free_us) - 1

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        label = LABELS.get(self.kind, printable(self.resource))
        return {"id": self.number, "kind": self.kind, "label": label, "lanes": max(1, len(self.free_us))}


@dataclass
class LiveBar:
    """Something that one job holds, runs or waits for."""

    number: int
    row: BarRow
    kind: str
    job: str
    begin_us: int
    end_us: int | None
    label: str
    state: str = ""
    lane: int = 0
    source: Interval | Wait | None = None  # kept, so that no other interval gets its id

    def as_list(self) -> list[Any]:
        """For JSON, short: a run may have tens of thousands."""
        end_us = self.end_us
        return [
            *(self.number, self.row.number, self.lane, self.kind, self.job),
            *(self.begin_us, end_us, self.label, self.state),
        ]


@dataclass
class BarChanges:
    """What is new since the last time."""

    opened: list[LiveBar] = field(default_factory=list)
    ended: list[LiveBar] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    rows: bool = False

    def __bool__(self) -> bool:
        return bool(self.opened or self.ended or self.dropped or self.rows)


class LiveBars:
    """All bars of a run whose fold goes on; the trace of the fold must not be cleared meanwhile."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._rows: dict[tuple[str, str], BarRow] = {}
        self._open: dict[Key, LiveBar] = {}
        self._seen = {"held": 0, "busy": 0, "waits": 0}
        self._bars: dict[int, LiveBar] = {}
        self._number = 0

    def bars(self) -> list[LiveBar]:
        """Every bar so far."""
        return list(self._bars.values())

    def rows(self) -> list[BarRow]:
        """Nodes above, QPUs below, each with the strips that belong to it; n2 before n10."""

        def place(row: BarRow) -> tuple[bool, Any, int]:
            of_nodes = row.kind in ("node", "nodes")
            name = [(0, "")] if row.kind == "nodes" else by_number(row.resource)
            return (not of_nodes, (row.kind == "nodes", name), ORDER.index(row.kind))

        return sorted(self._rows.values(), key=place)

    def catch_up(self) -> BarChanges:
        """Take in what the fold has gained."""
        changes = BarChanges()
        known_rows, lanes = len(self._rows), sum(len(row.free_us) for row in self._rows.values())
        self._name_rows()
        over = sorted(self._new_in_trace(), key=lambda one: one.begin_us)  # as lanes are given
        for interval in over:
            for key, resource in _keys(interval):
                self._end(key, resource, interval, changes)
        still: dict[Key, None] = {}
        open_now: list[Interval | Wait] = [*self._run.open_intervals(), *self._run.open_waits()]
        for interval in sorted(open_now, key=lambda one: one.begin_us):
            for key, resource in _keys(interval):
                still[key] = None
                if key not in self._open:
                    self._open[key] = self._add(interval, resource, None, changes)
        for key in [key for key in self._open if key not in still]:  # given back before the rest of its interval
            bar = self._open.pop(key)
            del self._bars[bar.number]
            changes.dropped.append(bar.number)
        changes.rows = (known_rows, lanes) != (len(self._rows), sum(len(row.free_us) for row in self._rows.values()))
        return changes

    def _name_rows(self) -> None:
        """The QPUs of the site have their rows before anything runs on them."""
        if not self._rows:
            for qpu in self._run.start.site.get("qpus") or ():
                self._row("qpu", str(qpu.get("name")))

    def _new_in_trace(self) -> Iterator[Interval | Wait]:
        trace = self._run.trace
        for name, entries in (("held", trace.held), ("busy", trace.busy), ("waits", trace.waits)):
            yield from entries[self._seen[name] :]
            self._seen[name] = len(entries)

    def _end(self, key: Key, resource: str, interval: Interval | Wait, changes: BarChanges) -> None:
        bar = self._open.pop(key, None)
        if bar is None:
            if interval.end_us > interval.begin_us:
                self._add(interval, resource, interval.end_us, changes)
            return
        lasted_us = interval.lasted_us if isinstance(interval, Interval) else None
        if lasted_us is not None:
            bar.begin_us = max(bar.begin_us, interval.end_us - lasted_us)
        bar.end_us, bar.state = interval.end_us, _state_of(interval)
        bar.row.free_us[bar.lane] = min(bar.row.free_us[bar.lane], interval.end_us)
        changes.ended.append(bar)

    def _add(self, interval: Interval | Wait, resource: str, end_us: int | None, changes: BarChanges) -> LiveBar:
        if isinstance(interval, Wait):
            row = self._row("nodes" if interval.kind == "nodes" else "queue", resource)
            kind, label = "wait", _wait_in_words(interval)
        else:
            row, kind, label = self._row(ROWS[interval.kind], resource), interval.kind, interval.label
        begin_us = interval.begin_us
        if end_us is not None and isinstance(interval, Interval) and interval.lasted_us is not None:
            begin_us = max(begin_us, end_us - interval.lasted_us)
        self._number += 1
        bar = LiveBar(self._number, row, kind, interval.job, begin_us, end_us, printable(label), _state_of(interval))
        bar.source = interval
        if kind not in ("node", "qpu"):  # what is held lies under what is busy, without a lane
            bar.lane = row.lane_for(begin_us, FOREVER_US if end_us is None else end_us)
        self._bars[bar.number] = bar
        changes.opened.append(bar)
        return bar

    def _row(self, kind: str, resource: str) -> BarRow:
        row = self._rows.get((kind, resource))
        if row is None:
            row = self._rows[kind, resource] = BarRow(len(self._rows), kind, resource)
        return row


def _keys(interval: Interval | Wait) -> list[tuple[Key, str]]:
    resources = (
        interval.resources if isinstance(interval, Interval) else (interval.device if interval.kind == "qpu" else "",)
    )
    return [((id(interval), resource), resource) for resource in resources]


def _state_of(interval: Interval | Wait) -> str:
    return interval.state if isinstance(interval, Interval) else interval.outcome


def _wait_in_words(wait: Wait) -> str:
    asked = wait.asked
    if not isinstance(asked, Requested):
        return wait.label
    things = [counted(asked.nodes, "more node" if asked.grow else "node")] if asked.nodes else []
    things += [f"QPU {asked.device}"] if asked.device and asked.hold in ("whole", "share") else []
    return f"for {' and '.join(things) or 'nodes'}{f': {asked.reason}' if asked.reason else ''}"
