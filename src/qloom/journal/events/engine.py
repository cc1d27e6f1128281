"""Events of the engine: the driver's own job, and what Slurm does and says."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from qloom.journal.event import EngineEvent, Event, recorded


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
