"""Runs that are handed from one driver to the next: who goes on, and since when that one has waited for Slurm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from qloom.journal.event import Event
from qloom.journal.events import Requested, Resumed, RunEnded

HANDED_ON = "handed on"  # the state of a run that a Slurm job goes on with


@dataclass(frozen=True)
class SlurmJob:
    """What Slurm says of the job that a run was handed to."""

    id: str
    stage: str  # "waits" | "holds" | "ended" | "unknown": Slurm does not answer
    words: str


def handed_to(events: Sequence[Event]) -> str | None:
    """The Slurm job that goes on with a run or that its driver lives in; None if there is no such job."""
    return next((event.engine_id for event in reversed(events) if isinstance(event, Resumed | RunEnded)), None)


def driver_job(events: Sequence[Event]) -> str | None:
    """The Slurm job that the last driver of a run lived in; None if it was not in one."""
    return next((event.engine_id for event in reversed(events) if isinstance(event, Resumed)), None)


def goes_on(before: Event | None, resumed: Resumed) -> bool:
    """Whether a run is resumed by the job that it was handed to: then it was not interrupted, it waited in line."""
    if not isinstance(before, RunEnded) or before.state != HANDED_ON:
        return False
    return before.engine_id == resumed.engine_id


def since_handed_on(events: Iterable[Event]) -> Iterator[Event]:
    """The events, in which a job that Slurm went on with has made its first request when it was handed on."""
    before: Event | None = None
    handed_us: int | None = None
    asked: list[str] = []
    for event in events:
        moved = event
        if isinstance(event, Resumed):
            handed_us, asked = before.at_us if before is not None and goes_on(before, event) else None, []
        elif isinstance(event, Requested) and handed_us is not None and event.job not in asked:
            asked.append(event.job)
            moved = replace(event, at_us=handed_us)
        yield moved
        before = event
