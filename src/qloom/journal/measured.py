"""Runs that are a whole workload: their journals have figures, and no events of the single jobs."""

from __future__ import annotations

from collections.abc import Sequence

from qloom.errors import JournalError
from qloom.journal.event import Event
from qloom.journal.events import JobOver, Measured


def measured(events: Sequence[Event]) -> dict[str, float] | None:
    """The figures of a workload; None if the run is one of jobs."""
    return next((dict(event.figures) for event in events if isinstance(event, Measured)), None)


def require_jobs(events: Sequence[Event], name: str) -> None:
    """Refuse a workload: it has nothing that could be gone on with or drawn."""
    if any(isinstance(event, JobOver | Measured) for event in events):
        raise JournalError(
            f"{name} is a workload of a campaign: there are no events of its jobs to go on with or to draw",
            hint=f"qloom show {name} has its figures, qloom campaign run goes on with campaigns",
        )
