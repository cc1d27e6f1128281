"""The way into a cluster under Slurm."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from qloom.journal.accounting import Interval, read_history
from qloom.journal.file import read_events
from qloom.worlds import Surroundings
from qloom.worlds.realtime import RealClock, execute
from qloom.worlds.slurm import submitted
from qloom.worlds.slurm.batch import SHARES
from qloom.worlds.slurm.facts import Facts, check, read_facts
from qloom.worlds.slurm.handon import Chain
from qloom.worlds.slurm.own import own_job
from qloom.worlds.slurm.reap import reap
from qloom.worlds.slurm.tags import own_tag
from qloom.worlds.slurm.world import SlurmWorld

__all__ = ["REAL_TIME", "check", "execute", "make", "submitted"]

REAL_TIME = True


def make(surroundings: Surroundings, clock: RealClock) -> SlurmWorld:
    """The partition of the site. What dead drivers of this user have left is given back first."""
    directory, record = surroundings.directory, surroundings.record
    logs = None if directory is None else directory / "logs"
    if logs is not None:
        logs.mkdir(mode=0o700, exist_ok=True)
    leaked = [row.id for row in reap()]
    if leaked and record is not None:
        record("reaped", engine_ids=leaked)
    run = f"memory-{os.getpid()}" if directory is None else directory.name
    past = [] if directory is None else read_history(read_events(directory)).intervals
    facts = read_facts(surroundings.site)
    chained = surroundings.driver == "chain"
    own = own_job(once=chained) if surroundings.driver == "in-job" or (chained and SHARES in os.environ) else None
    world = SlurmWorld(
        surroundings.site,
        facts,
        clock,
        own_tag(run, os.environ.get("SLURM_JOB_ID", "") if SHARES in os.environ else ""),
        surroundings.worker_set_up,
        logs,
        record,
        sum(interval.seconds for interval in past if interval.kind == "node"),
        sum(interval.seconds * _qpus(interval, facts) for interval in past),
        own,
    )
    if chained and directory is not None:
        own_id = own.row.whole if own is not None else None
        running: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment]  # the world is made in one
        world.chain = Chain(world.site, directory, world.client, own_id, world.holds_any, running.cancel)
    return world


def _qpus(interval: Interval, facts: Facts) -> float:
    """How much of a QPU a run that is resumed has held for a while, or has executed on where it held none."""
    if interval.kind == "vqpu":
        return 1 / facts.shares.get(interval.resource, 1)
    return float(interval.kind == "qpu" or (interval.kind == "quantum" and interval.hold == "task"))
