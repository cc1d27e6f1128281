"""What the local world costs on this machine, as overheads that virtual time can be given."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from typing import Any

from qloom.model import Task, call
from qloom.site import Overheads, Site
from qloom.worlds.local.world import LocalWorld
from qloom.worlds.realtime import RealClock

STARTS = 3
TASKS = 200


def measure(site: Site, *modules: str) -> Overheads:
    """Start a worker on every node at once, some times over, then send one of them empty tasks.

    `modules` are what tasks import first.
    """
    return asyncio.run(_measure(site, modules))


async def _measure(site: Site, modules: tuple[str, ...]) -> Overheads:
    first, empty = call(_import, modules), call(_import, ())
    starts_s: list[float] = []
    tasks_s: list[float] = []
    for _ in range(STARTS):
        world = LocalWorld(site, RealClock(), {"path": sys.path, "programs": {}})
        try:
            together_s = await asyncio.gather(*(_timed(world, node, first) for node in site.node_names))
            starts_s.append(statistics.mean(together_s))
            tasks_s += [await _timed(world, site.node_names[0], empty) for _ in range(TASKS)]
        finally:
            await world.close()
    return Overheads(
        worker_start_s=round(statistics.median(starts_s), 4),
        task_s=round(statistics.median(tasks_s), 6),
        warm_workers=True,
    )


async def _timed(world: LocalWorld, node: str, task: Task) -> float:
    began_s = time.perf_counter()
    await world.workers.get(node).run(task, {})
    return time.perf_counter() - began_s


def _import(modules: tuple[str, ...]) -> Any:
    for module in modules:
        __import__(module)
