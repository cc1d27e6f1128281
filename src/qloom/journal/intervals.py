"""What the fold of a journal yields: who held what, what was busy, who waited for how long; and how calls ended.

Nodes of a lease that came and went together are one interval. An interval is kept as it was recorded; `history.py`
cuts what was busy to what was held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from qloom.journal.events import (
    Called,
    Granted,
    Grown,
    QuantumEnded,
    QuantumQueued,
    QuantumStarted,
    Requested,
    TaskEnded,
    Withdrawn,
)
from qloom.model import plain_value

OPEN = "open"  # the state of what had not ended when its driver was killed, or has not yet
FOREVER_US = 1 << 62  # the end of an interval until it has one


@dataclass(slots=True)
class Interval:
    """Nodes or a QPU that one job held, or that worked for it, from one time to another."""

    kind: str  # "node" | "qpu" | "vqpu" | "task" | "spare" | "quantum"
    job: str
    resources: Sequence[str]  # nodes, or one QPU
    begin_us: int
    end_us: int  # `FOREVER_US` while it lasts
    label: str = ""  # the lease, or the name of the task
    state: str = ""
    work: str = ""  # for what is busy
    hold: str = ""  # for "quantum": how the QPU was held meanwhile
    queued_us: int = 0  # for "quantum": since when it was in the queue
    weight: float = 1.0  # for "node": the part of the node, if it is not all of it
    within: Interval | None = None  # for what is busy: the interval of the lease that it began in
    is_reduced: bool = False  # for "node": it had more nodes at first
    ended: TaskEnded | QuantumEnded | None = None

    @property
    def resource(self) -> str:
        """The first of its resources; a QPU has no other."""
        return self.resources[0]

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_us - self.begin_us) / 1e6

    @property
    def lasted_us(self) -> int | None:
        """How long a task ran by the clock of its worker, where that is known."""
        if self.ended is None or not isinstance(self.ended, TaskEnded) or self.ended.seconds is None:
            return None
        return round(self.ended.seconds * 1e6)

    def within_holds(self, begin_us: int, end_us: int) -> bool:
        """Whether the lease that it began in lasted as long as it was busy, or it is in none by its nature."""
        if self.kind == "quantum" and self.hold not in ("", "whole"):
            return True
        held = self.within
        if held is None or begin_us < held.begin_us or end_us > held.end_us:
            return False
        return not held.is_reduced or set(self.resources).issubset(held.resources)

    def over(self, begin_us: int, end_us: int, resources: Sequence[str]) -> Interval:
        """A copy for other times or for some of the resources."""
        return Interval(
            self.kind, self.job, resources, begin_us, end_us, self.label, self.state, self.work, self.hold,
            self.queued_us, self.weight, self.within, self.is_reduced, self.ended,
        )  # fmt: skip


def opened(kind: str, job: str, resources: Sequence[str], at_us: int, label: str, work: str = "") -> Interval:
    """An interval that begins now."""
    return Interval(kind, job, resources, at_us, FOREVER_US, label, "", work)


@dataclass(slots=True)
class Wait:
    """A request in line for nodes or a QPU, or a quantum task in the queue of a device."""

    kind: str  # "nodes" | "qpu"
    job: str
    asked: Requested | QuantumQueued
    begin_us: int  # for a run that was handed over: since it was
    end_us: int
    ended: Granted | Grown | Withdrawn | QuantumStarted | QuantumEnded | None = None  # None: its driver was killed
    state: str = ""

    @property
    def device(self) -> str:
        """The QPU that it is for, if any."""
        return self.asked.device or ""

    @property
    def label(self) -> str:
        """The name of a quantum task."""
        return self.asked.name if isinstance(self.asked, QuantumQueued) else ""

    @property
    def outcome(self) -> str:
        """The name of the event that ended it; empty if the driver was killed."""
        return "" if self.ended is None else self.ended.event

    @property
    def is_for_new_nodes(self) -> bool:
        """Whether it is a request for the nodes of a new lease."""
        return isinstance(self.asked, Requested) and self.asked.nodes > 0 and not self.asked.grow

    @property
    def granted_nodes(self) -> Sequence[str]:
        """The nodes that the request was granted."""
        return self.ended.nodes if isinstance(self.ended, Granted | Grown) else ()

    @property
    def observed_us(self) -> int:
        """Its length by the clock of the journal; 0 if its driver was killed."""
        return 0 if self.ended is None else self.ended.at_us - self.begin_us

    @property
    def charged_to(self) -> str | None:
        """What the time counts as: "nodes", "qpu", or None for a request that was never answered."""
        if self.ended is None or isinstance(self.ended, QuantumEnded):
            return None
        waited_for = self.ended.waited_for if isinstance(self.ended, Granted) else None
        return self.kind if waited_for is None else "nodes" if waited_for == "nodes" else "qpu"


@plain_value
class Offer:
    """Spare work that a program offered, and when the program asked for it; None if it never did."""

    work: str
    offered_us: int
    asked_us: int | None


@plain_value
class FinishedCall:
    """A call of a program that has returned."""

    call: Called
    returned_us: int


@plain_value
class Computation:
    """A stretch in which the program of a job computed itself, between its calls."""

    job: str
    begin_us: int
    end_us: int


@plain_value
class WorkerStart:
    """A worker process that became ready on a node or for a lane of a QPU."""

    node: str
    seconds: float
    warm: bool = False  # forked by a process that had imported before


@dataclass(slots=True)
class Trace:
    """All that is over, each in the order of its end."""

    held: list[Interval] = field(default_factory=list)
    busy: list[Interval] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)
    calls: list[FinishedCall] = field(default_factory=list)
    workers: list[WorkerStart] = field(default_factory=list)
    computations: list[Computation] = field(default_factory=list)

    def clear(self) -> None:
        """Forget it: a consumer of a run that goes on for days takes what is new after each event."""
        for entries in (self.held, self.busy, self.waits, self.offers, self.calls, self.workers, self.computations):
            entries.clear()
