"""What Slurm costs, as overheads that virtual time can be given. Best measured on a cluster that is idle."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable
from typing import Any

from qloom.journal.event import Event
from qloom.journal.events import WorkerStarted
from qloom.model import Work, call
from qloom.ports import Lease, Request
from qloom.site import Overheads, Site
from qloom.slurm.client import backfill_interval_s, call_once, read_config
from qloom.slurm.facts import check, read_facts
from qloom.slurm.tags import own_tag
from qloom.worlds.realtime import RealClock
from qloom.worlds.slurm.world import SlurmWorld

ROUNDS = 5
TASKS = 100


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
