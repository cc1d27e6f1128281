"""The way into a cluster under Slurm, and what Slurm costs: best measured on a cluster that is idle."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from qloom.journal.event import Event
from qloom.journal.events import Reaped, WorkerStarted
from qloom.journal.file import read_events
from qloom.journal.history import read_history
from qloom.journal.intervals import Interval
from qloom.model import QpuHold, Work, call
from qloom.site import Overheads, Site
from qloom.slurm.commands import backfill_interval_s, call_once, read_config
from qloom.slurm.facts import ClusterFacts, check, read_facts
from qloom.slurm.tags import own_tag, reap
from qloom.world import Lease, Request, World
from qloom.worlds import DriverJobs, RunContext
from qloom.worlds.hosted import HostedWorld
from qloom.worlds.realtime import RealClock, RealTimeEntry
from qloom.worlds.slurm import driver_job
from qloom.worlds.slurm.driver_job import DRIVER, SlurmHandover, is_inside, read_driver_job
from qloom.worlds.slurm.world import SlurmWorld

ROUNDS, TASKS = 5, 100  # when it is measured


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


# What it costs


def measure(site: Site, *modules: str, rounds: int = ROUNDS) -> Overheads:
    """Hold all nodes, grow, shrink and release, some times over; `modules` are what tasks import first."""
    check(site)
    return asyncio.run(_measure(site, modules, rounds))


async def _measure(site: Site, modules: tuple[str, ...], rounds: int) -> Overheads:
    starts_s: list[float] = []

    def record(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            starts_s.append(event.seconds)

    set_up = {"path": [entry for entry in sys.path if entry], "programs": {}, "preload": list(modules)}
    world = SlurmWorld(site, read_facts(site), RealClock(), own_tag("measure"), set_up, record=record)
    seconds: dict[str, list[float]] = {name: [] for name in ("grant", "grow", "shrink", "release", "task")}
    try:
        for number in range(rounds):
            await _one_round(world, site.nodes, number, seconds)
    finally:
        await world.close()
    median = {name: round(statistics.median(taken), 4) if taken else 0.0 for name, taken in seconds.items()}
    return Overheads(
        tick_s=backfill_interval_s(read_config(call_once("scontrol", "show", "config").stdout)),
        grant_s=median["grant"],
        worker_start_s=round(statistics.median(starts_s), 4),
        grow_s=median["grow"],
        shrink_s=median["shrink"],
        release_s=median["release"],
        task_s=median["task"],
    )


async def _one_round(world: SlurmWorld, nodes: int, number: int, seconds: dict[str, list[float]]) -> None:
    """All nodes at once with empty tasks on one of them; then, if there are several, one that grows and shrinks."""
    lease: Lease = await _timed(world.grant(Request(f"all.{number}", "measure", nodes, nodes)), seconds["grant"])
    for place in range(TASKS + 1):
        took: list[float] = []
        await _timed(world.execute([lease.nodes[0]], Work(call(abs, place), "measure", "abs", place), lease), took)
        seconds["task"] += took if place else []  # the first one waits for its worker
    await _all_started(world, lease)
    await _timed(world.free(lease), seconds["release"])
    if nodes < 2:
        return
    lease = await _timed(world.grant(Request(f"one.{number}", "measure", 1, 1)), [])
    more = Request(f"more.{number}", "measure", 1, nodes - 1, lease=lease)
    gained = await _timed(world.more_nodes(more), seconds["grow"])
    await _all_started(world, lease)
    await _timed(world.drop_nodes(lease, gained), seconds["shrink"])
    await world.free(lease)


async def _all_started(world: SlurmWorld, lease: Lease) -> None:
    for place, node in enumerate(lease.nodes):
        await world.execute([node], Work(call(abs, place), "measure", f"started.{node}", place), lease)


async def _timed(awaited: Awaitable[Any], seconds: list[float]) -> Any:
    began_s = time.perf_counter()
    result = await awaited
    seconds.append(time.perf_counter() - began_s)
    return result


ENTRY = RealTimeEntry(make_slurm_world, measure, check, SlurmDriverJobs())
