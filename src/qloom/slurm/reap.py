"""Allocations that dead drivers have left, running or pending: found by their tags, and given back."""

from __future__ import annotations

from qloom.errors import JobError
from qloom.slurm.client import call_once
from qloom.slurm.squeue import FORMAT, QueuedJob, read_jobs
from qloom.slurm.tags import read_tag


def leaked() -> list[QueuedJob]:
    """This user's jobs whose driver is known to have ended; never those of a live one, or of one out of sight."""
    answer = call_once("squeue", "-h", "--me", "-o", FORMAT)
    if answer.code != 0:
        raise JobError(f"squeue says: {answer.complaint}", hint="scontrol ping")
    rows = read_jobs(answer.stdout)
    in_queue = [row.leader for row in rows]
    live = [row for row in rows if row.state.stage != "ended"]
    return [row for row in live if (tag := read_tag(row.comment)) is not None and tag.is_dead(in_queue)]


def reap() -> list[QueuedJob]:
    """Cancel them; returns what was cancelled."""
    rows = leaked()
    if rows:
        answer = call_once("scancel", *dict.fromkeys(row.leader for row in rows))
        if answer.code != 0:
            raise JobError(f"scancel says: {answer.complaint}")
    return rows
