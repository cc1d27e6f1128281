"""The Slurm job that a driver lives in: what it holds, as its script and Slurm say."""

from __future__ import annotations

import os
from dataclasses import dataclass

from qloom.errors import InputError
from qloom.model import QpuHold
from qloom.slurm.client import call_once
from qloom.slurm.squeue import FORMAT, read_jobs
from qloom.worlds.slurm.batch import CORE, DRIVER_QPU
from qloom.worlds.slurm.parts import Part

DRIVER = "driver"  # the name of its lease


@dataclass(frozen=True)
class DriverJob:
    """The nodes and the QPU that the driver works with; none, if it has a core beside its allocations."""

    part: Part
    device: str | None = None
    shares: int = 0
    hold: QpuHold = QpuHold.TASK
    core_of: str | None = None  # the node of which a driver beside its allocations has a core


def is_inside() -> bool:
    """Whether this process was submitted as the driver of a run."""
    return "SLURM_JOB_ID" in os.environ and DRIVER_QPU in os.environ


def read_driver_job() -> DriverJob:
    """The job around this process."""
    if not is_inside():
        raise InputError("this driver is not inside a Slurm job of its own", hint="qloom submit, or --driver here")
    id = os.environ["SLURM_JOB_ID"]
    answer = call_once("squeue", "-h", "-t", "all", "-o", FORMAT, "-j", id)
    rows = {row.id: row for row in read_jobs(answer.stdout)}
    first = rows.get(f"{id}+0") or rows.get(id)
    if first is None:
        raise InputError(f"Slurm does not know job {id}: {answer.complaint}", hint="qloom submit it again")
    asked = os.environ[DRIVER_QPU]
    part = Part(first.leader, [] if asked == CORE else list(first.nodes), None, first.start_s, first.end_s)
    if asked == CORE:
        return DriverJob(part, core_of=first.nodes[0])
    if not asked:
        return DriverJob(part)
    device, hold, shares = asked.rsplit(":", 2)
    if f"{id}+1" in rows:
        part.qpu = f"{id}+1"
    else:  # the job is a QPU's alone: the node that stands for it computes nothing
        part.nodes, part.qpu = [], part.id
    return DriverJob(part, device, int(shares), QpuHold(hold))
