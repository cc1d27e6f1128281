"""The kinds of events in a journal. `docs/reference/journal.md` says what each of them means."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

from qloom.journal.event import STAMP, EngineEvent, Event, Json, Kept, recorded

# The run and its jobs


@recorded
class RunStarted(Event):
    """The plan of a run; always the first event."""

    version: int = 0
    qloom: str = ""
    program: str | None = None
    program_digest: str | None = None
    parameters: Json = field(default_factory=dict)
    strategy: str = ""
    options: Json | None = None
    world: str = ""
    site: Json = field(default_factory=dict)
    jobs: int = 1
    seed: int = 0
    profile: str | None = None
    engine: str | None = None
    advice: Json | None = None
    most_qpu_s: float | None = None
    on_recalibration: str | None = None
    created: str | None = None
    epoch_us: int | None = None
    host: str | None = None

    def in_real_time(self, began_us: int) -> RunStarted:
        """The same for a run that began at this time of day, here."""
        created = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(began_us / 1e6))
        return replace(self, created=created, epoch_us=began_us, host=platform.node())


@recorded
class Resumed(Event):
    """Another driver continues the run."""

    program_changed: bool = False
    engine_id: str | None = None
    on_recalibration: str | None = None


@recorded
class RunEnded(Event):
    """The driver has ended: the run is over, or another driver continues it."""

    state: str = "failed"
    engine_id: str | None = None
    reason: str | None = None


@recorded
class QpuBudgetSpent(Event):
    """The run has held as many QPU-seconds as it may; its jobs end."""

    most_qpu_s: float


@recorded
class JobSubmitted(Event):
    """A job begins to wait."""


@recorded
class JobEnded(Event):
    """A job is done, failed or interrupted."""

    state: str
    result: Kept | None = None
    error: Json | None = None


# What the program calls


@recorded
class Called(Event):
    """The program called for classical or quantum work."""

    call: str
    order: int = 0
    kind: str = ""
    names: list[str] = field(default_factory=list)
    contents: list[str] | None = None
    shots: int | None = None
    circuits: int | None = None


@recorded
class Diverged(Event):
    """A resumed program differs from its journal, and may: calls that it did not repeat are forgotten."""

    order: int
    then: str
    now: str | None = None
    forgotten: list[str] = field(default_factory=list)


@recorded
class Returned(Event):
    """The results of a call were given to the program."""

    call: str


@recorded
class CallAbandoned(Event):
    """The program ended before a call that it had made."""

    call: str


@recorded
class ProgramComputed(Event):
    """The program itself computed until now: before it made a call, asked for the result of one, or ended."""

    seconds: float
    call: str | None = None
    awaited: bool = False
    declared: bool = False


@recorded
class Progressed(Event):
    """How far the program says it is: `done` of `of`; it does not say the whole if that is None."""

    done: float
    of: float | None = None
    note: str | None = None


@recorded
class CandidateChosen(Event):
    """Which implementation of a quantum candidate was chosen, and why."""

    event: ClassVar[str] = "candidate"

    work: str
    instead: str | None = None
    choice: str
    reason: str | None = None


@recorded
class Speculated(Event):
    """The program offered spare work."""

    works: list[str]
    names: list[str] = field(default_factory=list)


@recorded
class Claimed(Event):
    """The program asked for work that had begun as spare work."""

    work: str


# Nodes and QPUs held


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


# A workload


@recorded
class JobOver(Event):
    """What came of one job of a workload; the fields are those of `qloom load run --csv`."""

    record: Json = field(default_factory=dict)

    @classmethod
    def fields_from(cls, line: Mapping[str, Any]) -> Json:
        """The record's fields stand in the line itself."""
        return {"record": {name: value for name, value in line.items() if name not in (*STAMP, "event")}}

    def as_dict(self) -> Json:
        """The line of the journal, as JSON has it."""
        return {"n": self.n, "at_us": self.at_us, "event": self.event, **self.record}


@recorded
class Measured(Event):
    """The figures of a workload."""

    figures: dict[str, float]


# The engine


@recorded
class DriverStarted(EngineEvent):
    """The Slurm job that the driver lives in, and what it holds until the driver ends."""

    nodes: list[str] = field(default_factory=list)
    weight: float | None = None
    device: str | None = None
    hold: str | None = None
    engine_id: str | None = None


@recorded
class DriverReleased(EngineEvent):
    """A part of the driver's job was given back before its end."""

    nodes: list[str] | None = None
    device: str | None = None


@recorded
class Reaped(Event):
    """Allocations of dead drivers of this user were released."""

    engine_ids: list[str]


@recorded
class SlurmSilent(Event):
    """Slurm's controller does not answer."""

    complaint: str


@recorded
class SlurmAnswers(Event):
    """Slurm's controller answers again."""

    seconds: float


@recorded
class NodesLost(Event):
    """Nodes have failed under a task."""

    event: ClassVar[str] = "node_lost"

    lease: str
    engine_id: str | None = None
    nodes: list[str]


@recorded
class AllocationTaken(Event):
    """Slurm has taken an allocation away."""

    event: ClassVar[str] = "allocation_ended"

    lease: str | None = None
    engine_id: str | None = None
    how: str


@recorded
class LookFailed(Event):
    """A look at Slurm's queue failed."""

    complaint: str


@recorded
class SlurmThrottled(Event):
    """The run called Slurm more often than the site allows."""

    most_calls_per_s: float


@recorded
class SlurmCalls(Event):
    """How often Slurm's programs were called."""

    count: int


@recorded
class ResizeRefused(Event):
    """Slurm refused to shrink an allocation."""

    lease: str
    engine_id: str | None = None
    complaint: str
