"""Slurm jobs that drivers live in: the one around this process, and the one that a run was handed to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from qloom.errors import JournalError, QloomError
from qloom.journal.queries import SlurmJob
from qloom.slurm.client import GONE, call_once
from qloom.slurm.endings import how_it_ended
from qloom.slurm.facts import require_programs
from qloom.slurm.squeue import FORMAT, read_jobs
from qloom.slurm.states import SlurmState, most_telling, read_state, reason_in_words


def own_job() -> str | None:
    """The Slurm job that this process runs in."""
    return os.environ.get("SLURM_JOB_ID")


def look(id: str) -> SlurmJob:
    """Whether it waits, and for what, runs, or has ended."""
    try:
        require_programs()
        answer = call_once("squeue", "-h", "-t", "all", "-o", FORMAT, "-j", id)
    except QloomError as error:
        return SlurmJob(id, "unknown", error.message)
    if answer.code != 0 and not any(text in answer.stderr.lower() for text in GONE):
        return SlurmJob(id, "unknown", f"squeue says: {answer.complaint}")
    rows = read_jobs(answer.stdout)
    if any(row.state.stage == "holds" for row in rows):
        return SlurmJob(id, "holds", "it is starting")
    if waiting := [row for row in rows if row.state.stage == "waits"]:
        reasons = [row.reason for row in waiting]
        return SlurmJob(id, "waits", reason_in_words(reasons[most_telling(reasons)]))
    known = rows and rows[0].state.name != "COMPLETING"  # which hides how it ended
    state = rows[0].state if known else _in_accounting(id)
    words = how_it_ended(None) if state is None else state.words
    return SlurmJob(id, "ended", f"{words} ({state.what_to_do})" if state is not None and state.what_to_do else words)


def _in_accounting(id: str) -> SlurmState | None:
    """How a job ended that the controller has forgotten, if the site keeps accounts."""
    if shutil.which("sacct") is None:
        return None
    said = call_once("sacct", "-X", "-n", "-P", "-j", id, "-o", "State").stdout.splitlines()
    return read_state(said[0]) if said else None


def stages(ids: Sequence[str]) -> dict[str, str]:
    """Whether each of several jobs waits, holds its nodes or has ended: one question; empty if nobody answers."""
    try:
        require_programs()
        answer = call_once("squeue", "-h", "-o", FORMAT, "-j", ",".join(ids))
    except QloomError:
        return {}
    if answer.code != 0 and not any(text in answer.stderr.lower() for text in GONE):
        return {}
    found = {row.leader: row.state.stage for row in reversed(read_jobs(answer.stdout))}
    return {id: found.get(id, "ended") for id in ids}


def require_ended(id: str, run: str) -> None:
    """Refuse to go on with a run that a job has, or will have."""
    job = look(id)
    if job.stage == "ended":
        return
    what = {"waits": "waits for its turn", "holds": "is still running"}.get(job.stage, f"may still run ({job.words})")
    raise JournalError(f"{run} {what}", hint=f"it is Slurm job {id}: scancel {id} first")
