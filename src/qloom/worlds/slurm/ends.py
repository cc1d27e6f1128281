"""The end of a Slurm job as a run sees it: when it was by the run's clock, and the error of what was taken away."""

from __future__ import annotations

import time

from qloom.errors import AllocationEnded
from qloom.ports import Clock
from qloom.slurm.endings import how_it_ended
from qloom.slurm.squeue import QueuedJob
from qloom.worlds.slurm.parts import Part

RESUME = "what is done is kept: qloom resume"


def engine_us(clock: Clock, observed_us: int, second: int | None) -> int | None:
    """Slurm knows whole seconds: what was observed, moved into the second that Slurm names."""
    if second is None:
        return None
    begin_us = _begin_us(clock, second)
    return min(max(observed_us, begin_us), begin_us + 999_999)


def unobserved_us(clock: Clock, second: int | None) -> int | None:
    """The same for what was not observed: the middle of the second that Slurm names."""
    return None if second is None else _begin_us(clock, second) + 500_000


def _begin_us(clock: Clock, second: int) -> int:
    return second * 1_000_000 - (time.time_ns() // 1000 - clock.now_us())


def taken_away(part: Part, row: QueuedJob | None, job: str | None) -> AllocationEnded:
    """The error of a job whose allocation Slurm has ended: what happened, and what to do."""
    advice = f"{row.state.what_to_do}; {RESUME}" if row is not None and row.state.what_to_do else RESUME
    return AllocationEnded(f"Slurm job {part.id} {how_it_ended(row)}", job=job, hint=advice)
