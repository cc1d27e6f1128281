"""Single facts of a journal that need no fold: how it ended, who continues it, whether anything was granted.

Runs that are a whole workload are here too: their journals have figures, and no events of the single jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qloom.errors import JournalError
from qloom.journal.event import Event
from qloom.journal.events import (
    CallAbandoned,
    Called,
    Granted,
    JobEnded,
    JobOver,
    JobSubmitted,
    Measured,
    QuantumEnded,
    Resumed,
    RunEnded,
    TaskEnded,
)

HANDED_ON = "handed on"  # the state of a run that a Slurm job continues


@dataclass(frozen=True)
class SlurmJob:
    """What Slurm says of the job that a run was handed to."""

    id: str
    stage: str  # "waits" | "holds" | "ended" | "unknown": Slurm does not answer
    words: str


def handed_to(events: Sequence[Event]) -> str | None:
    """The Slurm job that continues a run or that its driver lives in; None if there is no such job."""
    return next((event.engine_id for event in reversed(events) if isinstance(event, Resumed | RunEnded)), None)


def driver_job(events: Sequence[Event]) -> str | None:
    """The Slurm job that the last driver of a run lived in; None if it was not in one."""
    return next((event.engine_id for event in reversed(events) if isinstance(event, Resumed)), None)


def is_handover(before: Event | None, resumed: Resumed) -> bool:
    """Whether a run is resumed by the job that it was handed to: then it was not interrupted, it waited in line."""
    if not isinstance(before, RunEnded) or before.state != HANDED_ON:
        return False
    return before.engine_id == resumed.engine_id


def is_submitted(events: Sequence[Event], job: str) -> bool:
    """Whether a job of the run was submitted."""
    return any(isinstance(event, JobSubmitted) and event.job == job for event in events)


def was_granted_anything(events: Sequence[Event]) -> bool:
    """Whether any request of the run was granted."""
    return any(isinstance(event, Granted) for event in events)


def has_ended_work(events: Sequence[Event]) -> bool:
    """Whether any task or quantum task of the run has ended."""
    return any(isinstance(event, TaskEnded | QuantumEnded) for event in events)


def done_jobs(events: Sequence[Event]) -> dict[str, JobEnded]:
    """The jobs that are done, with the last end of each."""
    return {event.job: event for event in events if isinstance(event, JobEnded) and event.state == "done"}


def job_errors(events: Sequence[Event]) -> list[dict[str, str]]:
    """What jobs failed with."""
    return [event.error for event in events if isinstance(event, JobEnded) and event.error is not None]


def failed_tasks(events: Sequence[Event]) -> list[str]:
    """The first line of the error of each task that failed since the run was last resumed."""
    ended = [event for event in since_resumed(events) if type(event) is TaskEnded and event.state == "failed"]
    return [(event.error or "").partition("\n")[0] for event in ended]


def since_resumed(events: Sequence[Event]) -> Sequence[Event]:
    """What the last driver of a run has recorded."""
    resumed = [place for place, event in enumerate(events) if type(event) is Resumed]
    return events[resumed[-1] :] if resumed else events


def abandoned_calls(events: Sequence[Event]) -> dict[str, list[str]]:
    """By job, the calls that its program had made and not waited for when it ended, in words."""
    abandoned = [event for event in events if type(event) is CallAbandoned]
    if not abandoned:
        return {}
    calls = {(event.job, event.call): event for event in events if type(event) is Called}
    found: dict[str, list[str]] = {}
    for event in abandoned:
        call = calls.get((event.job, event.call))
        words = "a call" if call is None else f"{call.kind}({', '.join(call.names)})"
        found.setdefault(event.job, []).append(words)
    return found


def measured_figures(events: Sequence[Event]) -> dict[str, float] | None:
    """The figures of a workload; None if the run is one of jobs."""
    return next((dict(event.figures) for event in events if isinstance(event, Measured)), None)


def require_jobs(events: Sequence[Event], name: str) -> None:
    """Refuse a workload: its journal has no jobs to continue or to draw."""
    if any(isinstance(event, JobOver | Measured) for event in events):
        raise JournalError(
            f"{name} is a workload of a campaign: its journal has no events of single jobs to continue or to draw",
            hint=f"qloom show {name} has its figures, qloom campaign run continues campaigns",
        )
