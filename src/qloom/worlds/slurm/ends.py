"""What the journal has of Slurm's jobs: when they began and ended by the run's clock, and what was taken away."""

from __future__ import annotations

import time

from qloom.errors import AllocationEnded
from qloom.journal.event import Event, Record
from qloom.ports import Clock
from qloom.slurm.endings import how_it_ended
from qloom.slurm.squeue import QueuedJob

RESUME = "what is done is kept: qloom resume"


class ChangeRecorder:
    """Writes events to the journal, unless one repeats what was written last about the same lease or job."""

    def __init__(self, record: Record | None) -> None:
        self._record = record
        self._last: dict[str, str] = {}  # lease or job -> the last event about it

    def __call__(self, about: str, event: Event) -> None:
        """Write an event about a lease, a request or a job."""
        if self._record is not None and self._last.get(about) != (text := repr(event)):
            self._last[about] = text
            self._record(event)


def engine_us(clock: Clock, observed_us: int, second: int | None) -> int | None:
    """When something was observed, moved into the whole second that Slurm names for it."""
    if second is None:
        return None
    begin_us = _begin_us(clock, second)
    return min(max(observed_us, begin_us), begin_us + 999_999)


def unobserved_us(clock: Clock, second: int | None) -> int | None:
    """When something happened that was not observed: the middle of the second that Slurm names for it."""
    return None if second is None else _begin_us(clock, second) + 500_000


def _begin_us(clock: Clock, second: int) -> int:
    return second * 1_000_000 - (time.time_ns() // 1000 - clock.now_us())


def allocation_ended(id: str, queued: QueuedJob | None, job: str) -> AllocationEnded:
    """The error of a job of the run whose allocation Slurm has ended: what happened, and what to do."""
    advice = f"{queued.state.what_to_do}; {RESUME}" if queued is not None and queued.state.what_to_do else RESUME
    return AllocationEnded(f"Slurm job {id} {how_it_ended(queued)}", job=job, hint=advice)
