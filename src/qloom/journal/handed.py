"""Runs that are handed from one driver to the next: who goes on, and since when that one has waited for Slurm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from qloom.journal.file import Event

HANDED_ON = "handed on"  # the state of a run that a Slurm job goes on with


@dataclass(frozen=True)
class SlurmJob:
    """What Slurm says of the job that a run was handed to."""

    id: str
    stage: str  # "waits" | "holds" | "ended" | "unknown": Slurm does not answer
    words: str


def handed_to(events: Sequence[Event]) -> str | None:
    """The Slurm job that goes on with a run or that its driver lives in; None if there is no such job."""
    drivers = ("run_started", "resumed", "run_ended")
    last = next(event for event in reversed(events) if event["event"] in drivers)
    job: str | None = last.get("engine_id")
    return job


def driver_job(events: Sequence[Event]) -> str | None:
    """The Slurm job that the last driver of a run lived in; None if it was not in one."""
    last = next(event for event in reversed(events) if event["event"] in ("run_started", "resumed"))
    job: str | None = last.get("engine_id")
    return job


def goes_on(before: Event, resumed: Event) -> bool:
    """Whether a run is resumed by the job that it was handed to: then it was not interrupted, it waited in line."""
    return bool(before.get("state") == HANDED_ON and before["engine_id"] == resumed.get("engine_id"))


def since_handed_on(events: Iterable[Event]) -> Iterator[Event]:
    """The events, in which a job that Slurm went on with has made its first request when it was handed on."""
    before: Event = {}
    handed_us: int | None = None
    asked: list[str] = []
    for event in events:
        told = event
        if event["event"] == "resumed":
            handed_us, asked = before["at_us"] if goes_on(before, event) else None, []
        elif event["event"] == "requested" and handed_us is not None and event["job"] not in asked:
            asked.append(event["job"])
            told = {**event, "at_us": handed_us}
        yield told
        before = event
