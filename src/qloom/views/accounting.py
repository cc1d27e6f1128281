"""What a run held and used, from its journal alone.

A resource-second is *held* from grant to release, as Slurm bills it, and *busy* while a task runs on it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from qloom.journal.event import Event
from qloom.journal.events import (
    DriverReleased,
    DriverStarted,
    Granted,
    Grown,
    JobEnded,
    JobSubmitted,
    QpuReleased,
    QuantumEnded,
    QuantumQueued,
    QuantumStarted,
    QueuedAhead,
    Released,
    Requested,
    Resumed,
    RunEnded,
    RunStarted,
    Shrunk,
    TaskEnded,
    TaskStarted,
    Withdrawn,
)
from qloom.journal.file import start_of
from qloom.journal.handover import HANDED_ON, goes_on, since_handed_on

DRIVER = "driver"  # the label of what a driver's own job holds beside the leases
HELD_FOR = {"task": "node", "spare": "node", "quantum": "qpu"}  # what is busy, and what is held meanwhile
BOUNDED_SLOWDOWN_S = 10.0  # shorter jobs count as this long (Feitelson's bounded slowdown)


@dataclass(slots=True)
class Interval:
    """Something that was held or busy: on a node or a QPU, by one job."""

    resource: str
    job: str
    kind: str  # "node" | "qpu" | "vqpu" | "task" | "spare" | "quantum"
    begin_us: int
    end_us: int
    label: str = ""
    state: str = ""
    hold: str = ""  # for "quantum": how the QPU was held meanwhile
    weight: float = 1.0  # for "node": the part of the node, if it is not all of it

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_us - self.begin_us) / 1e6


@dataclass
class Account:
    """The figures of one job, or of a run as a whole."""

    wall_s: float = 0.0
    turnaround_s: float = 0.0
    node_wait_s: float = 0.0
    qpu_wait_s: float = 0.0
    node_s_held: float = 0.0
    node_s_busy: float = 0.0
    qpu_s_held: float = 0.0
    qpu_s_busy: float = 0.0
    vqpu_s_held: float = 0.0
    spare_node_s: float = 0.0  # node-seconds of spare work, also part of node_s_busy
    bounded_slowdown: float = 1.0
    energy_j: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For tables and JSON."""
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in vars(self).items()}


@dataclass
class History:
    """A journal read as intervals."""

    start: RunStarted
    intervals: list[Interval] = field(default_factory=list)
    submitted_us: dict[str, int] = field(default_factory=dict)
    asked_us: dict[str, int] = field(default_factory=dict)  # when a job first asked for something
    ended_us: dict[str, int] = field(default_factory=dict)
    node_waits_us: dict[str, int] = field(default_factory=dict)
    qpu_waits_us: dict[str, int] = field(default_factory=dict)
    gaps: list[tuple[int, int]] = field(default_factory=list)  # while nobody ran it: killed, then resumed

    @property
    def jobs(self) -> list[str]:
        """The jobs of the run."""
        return list(self.submitted_us)


def read_history(events: list[Event]) -> History:
    """Pair the beginnings and ends in a journal."""
    return _Reader(events).history


def account(history: History, job: str | None = None) -> Account:
    """The figures of one job, or (job None) of the whole run."""
    own = [interval for interval in history.intervals if job in (None, interval.job)]
    jobs = history.jobs if job is None else [job]
    sums = dict.fromkeys(("node", "qpu", "vqpu", "task", "spare", "quantum"), 0.0)
    for interval in own:
        sums[interval.kind] += interval.seconds * interval.weight
    executing = [interval for interval in own if interval.kind == "quantum"]
    in_queue_s = _covered_s([interval for interval in executing if interval.hold != "whole"])
    end_us = max((interval.end_us for interval in own), default=0)
    submitted_us = min((history.submitted_us[name] for name in jobs), default=0)
    last_us = max((history.ended_us.get(name, end_us) for name in jobs), default=0)
    wall_s = _wall_us(history, jobs, own) / 1e6
    turnaround_s = max(0, last_us - submitted_us) / 1e6
    result = Account(
        wall_s=wall_s,
        turnaround_s=turnaround_s,
        node_wait_s=sum(history.node_waits_us.get(name, 0) for name in jobs) / 1e6,
        qpu_wait_s=sum(history.qpu_waits_us.get(name, 0) for name in jobs) / 1e6,
        node_s_held=sums["node"],
        node_s_busy=sums["task"] + sums["spare"],
        qpu_s_held=sums["qpu"] + in_queue_s,
        qpu_s_busy=_covered_s(executing),
        vqpu_s_held=sums["vqpu"],
        spare_node_s=sums["spare"],
        bounded_slowdown=max(1.0, turnaround_s / max(wall_s, BOUNDED_SLOWDOWN_S)),
    )
    result.energy_j = _energy_j(history.start.site.get("watts", {}), result)
    return result


def _covered_s(intervals: list[Interval]) -> float:
    """Seconds in which at least one interval lasts, for each resource: a QPU may run several tasks at once."""
    covered_us, ends_us = 0, dict.fromkeys((interval.resource for interval in intervals), -1)
    for interval in sorted(intervals, key=lambda interval: interval.begin_us):
        begin_us = max(interval.begin_us, ends_us[interval.resource])
        covered_us += max(0, interval.end_us - begin_us)
        ends_us[interval.resource] = max(ends_us[interval.resource], interval.end_us)
    return covered_us / 1e6


def _wall_us(history: History, jobs: list[str], own: list[Interval]) -> int:
    """From start to end, with what the driver computes itself, but without the wait for what is held first."""
    if not jobs:
        return 0
    last_us = [history.ended_us[name] for name in jobs if name in history.ended_us]
    end_us = max((*last_us, *(interval.end_us for interval in own)), default=0)
    first_us = min((interval.begin_us for interval in own), default=end_us)
    asked_us = min((first_us, *(history.asked_us[name] for name in jobs if name in history.asked_us)))
    begin_us = min(asked_us, *(history.submitted_us[name] for name in jobs))
    spans = ((begin_us, asked_us), (first_us, end_us))
    return sum(until_us - since_us - _lost_us(history, since_us, until_us) for since_us, until_us in spans)


def _lost_us(history: History, begin_us: int, end_us: int) -> int:
    return sum(max(0, min(until, end_us) - max(since, begin_us)) for since, until in history.gaps)


def _energy_j(watts: dict[str, float], used: Account) -> float | None:
    if not any(watts.values()):
        return None
    nodes_j = watts["node_idle"] * (used.node_s_held - used.node_s_busy) + watts["node_busy"] * used.node_s_busy
    return nodes_j + watts["qpu_idle"] * (used.qpu_s_held - used.qpu_s_busy) + watts["qpu_busy"] * used.qpu_s_busy


@dataclass
class _DriverJob:
    """The engine's job that the driver lives in, as long as it does."""

    job: str = ""  # that it is counted for; none if the run has several
    nodes: list[str] = field(default_factory=list)
    weight: float = 1.0
    device: str | None = None
    kind: str = "vqpu"

    def release(self, nodes: list[str], device: str | None) -> None:
        """Some of it was given back."""
        self.nodes = [node for node in self.nodes if node not in nodes]
        self.device = None if device == self.device else self.device


class _Reader:
    """One pass over the events; what is open when a run was killed ends at the last event before that."""

    def __init__(self, events: list[Event]) -> None:
        self.history = History(start_of(events))
        self._open: dict[tuple[str, ...], Interval] = {}
        self._tasks: dict[tuple[str, str], list[tuple[str, ...]]] = {}  # (job, work) -> what is open of it
        self._requested: dict[tuple[str, str], int] = {}
        self._wants_nodes: dict[tuple[str, str], bool] = {}
        self._driver = _DriverJob()
        last_us = 0
        before: Event = events[0]
        for event in since_handed_on(events):
            if isinstance(event, Resumed):
                self._end_all(last_us)
                if not goes_on(before, event):
                    self.history.gaps.append((last_us, event.at_us))
            self._read(event, event.when_us)
            last_us, before = max(last_us, event.at_us), event
        self._end_all(last_us)
        _keep_within_held(self.history.intervals)

    def _read(self, event: Event, at_us: int) -> None:
        job = event.job
        match event:
            case JobSubmitted():
                self.history.submitted_us[job] = at_us
            case JobEnded():
                self.history.ended_us[job] = at_us
            case QueuedAhead():
                self.history.asked_us.setdefault(job, at_us)
            case Requested():
                self.history.asked_us.setdefault(job, at_us)
                self._requested[job, event.lease] = at_us
                self._wants_nodes[job, event.lease] = event.nodes > 0
            case DriverStarted():
                job = "j1" if self.history.start.jobs == 1 else ""
                self._driver = _DriverJob(job, event.nodes, event.weight or 1.0, event.device)
                self._driver.kind = "qpu" if event.hold == "whole" else "vqpu"
                self._hold_for_driver(at_us)
            case DriverReleased():
                self._driver.release(event.nodes or [], event.device)
                for resource in [*(event.nodes or []), *filter(None, [event.device])]:
                    self._end((DRIVER, resource), at_us)
            case RunEnded():
                if event.state == HANDED_ON:  # its jobs wait for Slurm since they were submitted
                    self.history.asked_us = self.history.submitted_us | self.history.asked_us
                self._driver = _DriverJob()
                for key in [key for key in self._open if key[0] == DRIVER]:
                    self._end(key, at_us)
            case Granted() | Grown():
                self._granted(event, job, at_us)
            case Withdrawn():
                self._waited(job, event.lease, at_us)
            case Shrunk():
                for node in event.nodes:
                    self._end(("node", event.lease, node), at_us)
                self._hold_for_driver(at_us)
            case QpuReleased():
                self._end(("qpu", event.lease), at_us)
                self._hold_for_driver(at_us)
            case Released():
                for key in [key for key, held in self._open.items() if held.label == event.lease]:
                    self._end(key, at_us)
                self._hold_for_driver(at_us)
            case TaskStarted():
                kind = "spare" if event.spare else "task"
                keys = self._tasks.setdefault((job, event.work), [])
                for node in event.nodes:
                    keys.append((kind, job, event.work, node))
                    self._begin(keys[-1], node, job, kind, at_us, event.name)
            case TaskEnded():
                for key in self._tasks.pop((job, event.work), ()):
                    self._end(key, at_us, event.state, event.seconds)
            case QuantumQueued():
                self.history.asked_us.setdefault(job, at_us)
                self._requested[job, event.work] = at_us
                self._begin(("queued", job, event.work), event.device, job, "queued", at_us, event.name)
                self._open["queued", job, event.work].hold = event.hold
            case QuantumStarted():
                queued = self._open.pop(("queued", job, event.work))
                waits = self.history.qpu_waits_us
                waits[job] = waits.get(job, 0) + at_us - self._requested.pop((job, event.work))
                self._begin(("quantum", job, event.work), event.device, job, "quantum", at_us, queued.label)
                self._open["quantum", job, event.work].hold = queued.hold
            case QuantumEnded():
                self._open.pop(("queued", job, event.work), None)
                if ("quantum", job, event.work) in self._open:
                    self._end(("quantum", job, event.work), at_us, event.state)

    def _granted(self, event: Granted | Grown, job: str, at_us: int) -> None:
        lease, gaps = event.lease, self.history.gaps
        if gaps and at_us < gaps[-1][1]:  # a job that holds nodes already went on with it
            gaps[-1] = (gaps[-1][0], max(gaps[-1][0], at_us))
        self._waited(job, lease, at_us, event.waited_for if isinstance(event, Granted) else None)
        for node in event.nodes:
            self._end((DRIVER, node), at_us)
            self._begin(("node", lease, node), node, job, "node", at_us, lease)
        if isinstance(event, Granted) and (device := event.device) is not None:
            self._end((DRIVER, device), at_us)
            kind = "qpu" if event.hold == "whole" else "vqpu"
            self._begin(("qpu", lease), device, job, kind, at_us, lease)

    def _hold_for_driver(self, at_us: int) -> None:
        """What is in the driver's job and in no lease is held all the same."""
        driver = self._driver
        if not driver.nodes and driver.device is None:
            return
        leased = [held.resource for held in self._open.values() if held.kind in ("node", "qpu", "vqpu")]
        for node in [node for node in driver.nodes if node not in leased]:
            self._begin((DRIVER, node), node, driver.job, "node", at_us, DRIVER)
            self._open[DRIVER, node].weight = driver.weight
        if driver.device is not None and driver.device not in leased:
            self._begin((DRIVER, driver.device), driver.device, driver.job, driver.kind, at_us, DRIVER)

    def _waited(self, job: str, lease: str, at_us: int, waited_for: str | None = None) -> None:
        since_us = self._requested.pop((job, lease), at_us)
        for_nodes = self._wants_nodes.get((job, lease)) if waited_for is None else waited_for == "nodes"
        waits = self.history.node_waits_us if for_nodes else self.history.qpu_waits_us
        waits[job] = waits.get(job, 0) + max(0, at_us - since_us)  # the engine's clock and ours differ

    def _begin(self, key: tuple[str, ...], resource: str, job: str, kind: str, at_us: int, label: str = "") -> None:
        self._open[key] = Interval(resource, job, kind, at_us, at_us, label)

    def _end(self, key: tuple[str, ...], at_us: int, state: str = "", lasted_s: float | None = None) -> None:
        """End what is open. If it lasted for less time, it began later: its worker started or imported modules."""
        interval = self._open.pop(key, None)
        if key[0] == DRIVER and interval is not None and at_us <= interval.begin_us:
            return  # it was lent from the start
        if interval is not None and interval.kind != "queued":
            interval.end_us, interval.state = max(at_us, interval.begin_us), state
            if lasted_s is not None:
                interval.begin_us = max(interval.begin_us, interval.end_us - round(lasted_s * 1e6))
            self.history.intervals.append(interval)

    def _end_all(self, at_us: int) -> None:
        self._driver = _DriverJob()
        for key in list(self._open):
            self._end(key, at_us, "open")


def _keep_within_held(intervals: list[Interval]) -> None:
    """Cut what was busy to what was held: the end of a task is known only after Slurm has taken its node away."""
    held: dict[tuple[str, str, str], list[Interval]] = {}
    for interval in sorted(intervals, key=attrgetter("begin_us")):
        held.setdefault((interval.kind, interval.resource, interval.job), []).append(interval)
    for busy in intervals:
        if busy.kind not in HELD_FOR or busy.hold not in ("", "whole"):
            continue
        leases = held.get((HELD_FOR[busy.kind], busy.resource, busy.job), [])
        place = bisect_right(leases, busy.begin_us, key=attrgetter("begin_us"))
        spans = [
            (max(busy.begin_us, lease.begin_us), min(busy.end_us, lease.end_us))
            for lease in leases[max(0, place - 1) : place + 1]  # the one that holds it now, or begins a moment later
        ]
        begin_us, end_us = max(spans, key=lambda span: span[1] - span[0], default=(busy.begin_us, busy.begin_us))
        busy.begin_us, busy.end_us = begin_us, max(begin_us, end_us)
