"""The Slurm jobs that drivers live in: the one around this process, and those that runs were handed to.

It calls Slurm once for each question, before or after a run, and never waits for an answer.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from qloom.errors import InputError, JournalError, QloomError
from qloom.journal.queries import SlurmJob
from qloom.model import QpuHold
from qloom.slurm.client import GONE, call_once
from qloom.slurm.endings import how_it_ended
from qloom.slurm.facts import require_programs
from qloom.slurm.squeue import FORMAT, read_jobs
from qloom.slurm.states import SlurmState, most_telling, read_state, reason_in_words
from qloom.worlds.slurm.batch import CORE, DRIVER_QPU

DRIVER = "driver"  # the name of its lease


@dataclass(frozen=True)
class DriverJob:
    """The nodes and the QPU that the driver works with; none, if it has a core beside its allocations."""

    id: str
    nodes: tuple[str, ...]
    start_s: int | None  # since the epoch, as Slurm has it
    end_s: int | None
    qpu: str | None = None  # the job, or the component of a het job, that stands for the QPU
    device: str | None = None
    shares: int = 0
    hold: QpuHold = QpuHold.TASK
    core_of: str | None = None  # the node of which a driver beside its allocations has a core


def is_inside() -> bool:
    """Whether this process was submitted as the driver of a run."""
    return "SLURM_JOB_ID" in os.environ and DRIVER_QPU in os.environ


def enclosing_job() -> str | None:
    """The Slurm job that this process runs in."""
    return os.environ.get("SLURM_JOB_ID")


def read_driver_job() -> DriverJob:
    """Read the job around this process: its nodes from Slurm, its QPU from the variable that its script has set."""
    if not is_inside():
        raise InputError("this driver is not inside a Slurm job of its own", hint="qloom submit, or --driver here")
    id = os.environ["SLURM_JOB_ID"]
    answer = call_once("squeue", "-h", "-t", "all", "-o", FORMAT, "-j", id)
    jobs = {job.id: job for job in read_jobs(answer.stdout)}
    first = jobs.get(f"{id}+0") or jobs.get(id)
    if first is None:
        raise InputError(f"Slurm does not know job {id}: {answer.complaint}", hint="qloom submit it again")
    asked = os.environ[DRIVER_QPU]
    if asked == CORE:
        return DriverJob(first.leader, (), first.start_s, first.end_s, core_of=first.nodes[0])
    if not asked:
        return DriverJob(first.leader, first.nodes, first.start_s, first.end_s)
    device, hold, shares = asked.rsplit(":", 2)
    # A job without a second component is a QPU's alone: the node that stands for it computes nothing.
    nodes, qpu = (first.nodes, f"{id}+1") if f"{id}+1" in jobs else ((), first.leader)
    return DriverJob(first.leader, nodes, first.start_s, first.end_s, qpu, device, int(shares), QpuHold(hold))


# Jobs that runs were handed to


def look(id: str) -> SlurmJob:
    """Whether a job waits, and for what, runs, or has ended."""
    try:
        require_programs()
        answer = call_once("squeue", "-h", "-t", "all", "-o", FORMAT, "-j", id)
    except QloomError as error:
        return SlurmJob(id, "unknown", error.message)
    if answer.code != 0 and not any(text in answer.stderr.lower() for text in GONE):
        return SlurmJob(id, "unknown", f"squeue says: {answer.complaint}")
    jobs = read_jobs(answer.stdout)
    if any(job.state.stage == "holds" for job in jobs):
        return SlurmJob(id, "holds", "it is starting")
    if reasons := [job.reason for job in jobs if job.state.stage == "waits"]:
        return SlurmJob(id, "waits", reason_in_words(reasons[most_telling(reasons)]))
    is_known = jobs and jobs[0].state.name != "COMPLETING"  # which hides how it ended
    state = jobs[0].state if is_known else _state_in_accounting(id)
    words = how_it_ended(None) if state is None else state.words
    return SlurmJob(id, "ended", f"{words} ({state.what_to_do})" if state is not None and state.what_to_do else words)


def _state_in_accounting(id: str) -> SlurmState | None:
    """How a job ended that the controller has forgotten, if the site keeps accounts."""
    if shutil.which("sacct") is None:
        return None
    lines = call_once("sacct", "-X", "-n", "-P", "-j", id, "-o", "State").stdout.splitlines()
    return read_state(lines[0]) if lines else None


def stages(ids: Sequence[str]) -> dict[str, str]:
    """Whether each job waits, holds its nodes or has ended, by one call; empty if Slurm does not answer."""
    try:
        require_programs()
        answer = call_once("squeue", "-h", "-o", FORMAT, "-j", ",".join(ids))
    except QloomError:
        return {}
    if answer.code != 0 and not any(text in answer.stderr.lower() for text in GONE):
        return {}
    found = {job.leader: job.state.stage for job in reversed(read_jobs(answer.stdout))}
    return {id: found.get(id, "ended") for id in ids}


def require_ended(id: str, run: str) -> None:
    """Refuse to go on with a run that a job has, or will have."""
    job = look(id)
    if job.stage == "ended":
        return
    what = {"waits": "waits for its turn", "holds": "is still running"}.get(job.stage, f"may still run ({job.words})")
    raise JournalError(f"{run} {what}", hint=f"it is Slurm job {id}: scancel {id} first")
