"""The way into a cluster under Slurm."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from qloom.journal.events import Reaped
from qloom.journal.file import read_events
from qloom.journal.history import read_history
from qloom.journal.intervals import Interval
from qloom.model import QpuHold
from qloom.ports import Lease, World
from qloom.slurm.facts import ClusterFacts, check, read_facts
from qloom.slurm.reap import reap
from qloom.slurm.tags import own_tag
from qloom.worlds import DriverJobs, RunContext
from qloom.worlds.hosted import HostedWorld
from qloom.worlds.realtime import RealClock, RealTimeEntry
from qloom.worlds.slurm import driver_job
from qloom.worlds.slurm.batch import SlurmHandover
from qloom.worlds.slurm.driver_job import DRIVER, is_inside, read_driver_job
from qloom.worlds.slurm.world import SlurmWorld


class SlurmDriverJobs(DriverJobs):
    """The Slurm jobs that drivers live in."""

    def enclosing_job(self) -> str | None:
        """The Slurm job that this process runs in."""
        return driver_job.enclosing_job()

    def require_ended(self, job: str, run: str) -> None:
        """Refuse to go on with a run that a Slurm job has, or will have."""
        driver_job.require_ended(job, run)


def make_slurm_world(context: RunContext, clock: RealClock) -> World:
    """The partition of the site. What dead drivers of this user have left is given back first."""
    directory, record = context.directory, context.record
    logs = None if directory is None else directory / "logs"
    if logs is not None:
        logs.mkdir(mode=0o700, exist_ok=True)
    leaked = [row.id for row in reap()]
    if leaked and record is not None:
        record(Reaped(engine_ids=leaked))
    run = f"memory-{os.getpid()}" if directory is None else directory.name
    past = [] if directory is None else read_history(read_events(directory)).intervals
    facts = read_facts(context.site)
    world = SlurmWorld(
        context.site,
        facts,
        clock,
        own_tag(run, os.environ["SLURM_JOB_ID"] if is_inside() else ""),
        context.worker_set_up,
        logs,
        record,
        sum(i.seconds * len(i.resources) * i.weight for i in past if i.kind == "node"),
        sum(interval.seconds * _qpus(interval, facts) for interval in past),
    )
    lives_in_a_job = context.driver == "in-job" or (context.driver != "here" and is_inside())
    if directory is None or not (lives_in_a_job or context.driver == "chain"):
        return world
    return _hosted(world, context.driver, directory, lives_in_a_job)


def _hosted(world: SlurmWorld, driver: str, directory: Path, lives_in_a_job: bool) -> HostedWorld:
    """The same for a driver that lives in a Slurm job; the first one of a chain does not yet."""
    once = driver == "chain"
    own, hold, own_id = Lease(DRIVER, "", []), QpuHold.TASK, None
    if lives_in_a_job:
        job = read_driver_job()
        own, hold, own_id = world.adopt(job), job.hold, job.id
    running: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment]  # the world is made in one
    handover = SlurmHandover(world.site, world.facts, directory, world.client, driver, own_id, running.cancel)
    patience_s = 0.0 if once else world.site.slurm.handover_s
    return HostedWorld(world, own, hold, handover, patience_s, whole=driver == "beside", once=once)


def _qpus(interval: Interval, facts: ClusterFacts) -> float:
    """How much of a QPU a run that is resumed has held for a while, or has executed on where it held none."""
    if interval.kind == "vqpu":
        return 1 / facts.shares.get(interval.resource, 1)
    return float(interval.kind == "qpu" or (interval.kind == "quantum" and interval.hold == "task"))


ENTRY = RealTimeEntry(make_slurm_world, check, SlurmDriverJobs())
