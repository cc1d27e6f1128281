"""Events of what is held and of the work on it: leases of nodes and QPUs, tasks, quantum tasks."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from qloom.journal.event import EngineEvent, Event, Kept, recorded


@recorded
class Requested(Event):
    """A request stands in line."""

    lease: str
    nodes: int = 0
    device: str | None = None
    hold: str | None = None
    grow: bool = False
    spare: bool = False
    reason: str | None = None


@recorded
class QueuedAhead(Event):
    """A request has a place in line, but is not eligible before the lease `after` was released."""

    lease: str
    nodes: int = 0
    device: str | None = None
    hold: str | None = None
    spare: bool = False
    after: str | None = None
    reason: str | None = None


@recorded
class StillWaits(Event):
    """The engine says why a request waits."""

    lease: str
    engine_id: str | None = None
    reason: str = ""


@recorded
class Granted(EngineEvent):
    """A request was granted: its lease begins."""

    lease: str
    nodes: list[str] = field(default_factory=list)
    device: str | None = None
    hold: str | None = None
    shares: int | None = None
    waited_for: str | None = None
    engine_id: str | None = None


@recorded
class Grown(EngineEvent):
    """A lease has more nodes."""

    lease: str
    nodes: list[str] = field(default_factory=list)
    engine_id: str | None = None


@recorded
class Withdrawn(Event):
    """A request left the line without a grant."""

    lease: str


@recorded
class Shrunk(EngineEvent):
    """A lease has fewer nodes: they were given back, or (`lost`) have failed."""

    lease: str
    nodes: list[str] = field(default_factory=list)
    lost: bool = False


@recorded
class QpuReleased(EngineEvent):
    """A lease gave its QPU back and kept its nodes."""

    lease: str
    device: str | None = None
    shares: int | None = None


@recorded
class Released(EngineEvent):
    """A lease is over."""

    lease: str
    reason: str | None = None


# Work


@recorded
class WorkerStarted(Event):
    """A worker process is ready on a node or for a lane of a QPU."""

    node: str
    seconds: float = 0.0
    warm: bool = False  # forked by a parent that had imported before


@recorded
class TaskStarted(Event):
    """A task runs; `spare` if nobody waits for it yet."""

    work: str
    name: str = ""
    nodes: list[str] = field(default_factory=list)
    spare: bool = False


@recorded
class TaskEnded(Event):
    """A task is done, failed or dropped."""

    work: str
    state: str
    result: Kept | None = None
    error: str | None = None
    seconds: float | None = None


@recorded
class ResultMissing(Event):
    """A result is missing or damaged: its work runs again."""

    event: ClassVar[str] = "result_lost"

    work: str


@recorded
class QuantumQueued(Event):
    """A quantum task is in the queue of a device."""

    work: str
    name: str = ""
    device: str
    hold: str = "task"


@recorded
class QuantumStarted(Event):
    """A device executes a quantum task."""

    work: str
    device: str


@recorded
class QuantumEnded(Event):
    """A quantum task is done, failed or cancelled."""

    work: str
    device: str | None = None
    state: str
    result: Kept | None = None
    error: str | None = None
    calibration: str | None = None


@recorded
class Recalibrated(Event):
    """Answers of a device are of another calibration than those before, or will be; and what the run did about it.

    `first` is the first task of the later calibration or, if the run was resumed after it, of the earlier one.
    """

    device: str
    was: str
    now: str
    first: str
    resumed: bool = False
    action: str = "warn"
