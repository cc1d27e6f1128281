"""The kinds of events in a journal. `docs/reference/journal.md` says what each of them means."""

from __future__ import annotations

from qloom.journal.events.engine import (
    AllocationTaken,
    DriverReleased,
    DriverStarted,
    LookFailed,
    NodesLost,
    Reaped,
    ResizeRefused,
    SlurmAnswers,
    SlurmCalls,
    SlurmSilent,
    SlurmThrottled,
)
from qloom.journal.events.program import (
    CallAbandoned,
    Called,
    CandidateChosen,
    Claimed,
    Diverged,
    JobEnded,
    JobOver,
    JobSubmitted,
    Measured,
    ProgramComputed,
    Progressed,
    QpuBudgetSpent,
    Resumed,
    Returned,
    RunEnded,
    RunStarted,
    Speculated,
)
from qloom.journal.events.resources import (
    Granted,
    Grown,
    QpuReleased,
    QuantumEnded,
    QuantumQueued,
    QuantumStarted,
    QueuedAhead,
    Recalibrated,
    Released,
    Requested,
    ResultMissing,
    Shrunk,
    StillWaits,
    TaskEnded,
    TaskStarted,
    Withdrawn,
    WorkerStarted,
)

__all__ = [
    "AllocationTaken", "CallAbandoned", "Called", "CandidateChosen", "Claimed", "Diverged", "DriverReleased",
    "DriverStarted", "Granted", "Grown", "JobEnded", "JobOver", "JobSubmitted", "LookFailed", "Measured",
    "NodesLost", "ProgramComputed", "Progressed", "QpuBudgetSpent", "QpuReleased", "QuantumEnded", "QuantumQueued",
    "QuantumStarted", "QueuedAhead", "Reaped", "Recalibrated", "Released", "Requested", "ResizeRefused",
    "ResultMissing", "Resumed", "Returned", "RunEnded", "RunStarted", "Shrunk", "SlurmAnswers", "SlurmCalls",
    "SlurmSilent", "SlurmThrottled", "Speculated", "StillWaits", "TaskEnded", "TaskStarted", "Withdrawn",
    "WorkerStarted"
]  # fmt: skip
