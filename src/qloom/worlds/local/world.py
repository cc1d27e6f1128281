"""The local world: a line for the slots of this machine, and a warm worker process in each.

Also the way into it, and what it costs on this machine.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qloom.errors import TaskFailed
from qloom.journal.event import Record
from qloom.logs import task_log
from qloom.model import Task, Work, call
from qloom.mpi.launch import mpiexec, require_mpi, run_ranks
from qloom.site import Overheads, Site
from qloom.world import Lease, Ran, Request, World
from qloom.worlds import RunContext
from qloom.worlds.answers import WorkerAnswers, emulate
from qloom.worlds.line import FifoLine
from qloom.worlds.partitions import Partitions, lease_of
from qloom.worlds.process import WorkerDied
from qloom.worlds.realtime import LocalWorkers, RealClock, RealTimeEntry, run_task, task_environment

STARTS, TASKS = 3, 200  # of workers and of empty tasks, when it is measured


@dataclass
class LocalWorld(World):
    """Nodes are slots of this machine."""

    site: Site
    clock: RealClock
    worker_set_up: dict[str, Any]
    logs: Path | None = None
    record: Record | None = None

    def __post_init__(self) -> None:
        self.node_names = self.site.node_names
        self.workers = LocalWorkers(self.clock, self.worker_set_up, self.logs, self.record)
        answers = [WorkerAnswers(qpu, self.workers.get, self.logs) for qpu in self.site.qpus]
        self.devices = [emulate(qpu, self.clock, of) for qpu, of in zip(self.site.qpus, answers, strict=True)]
        self.shares = {qpu.name: qpu.shares for qpu in self.site.qpus}
        self._line = FifoLine(Partitions(self.node_names, self.shares), self.clock)

    async def grant(self, request: Request) -> Lease | None:
        """Wait in line for a new lease; workers start while the job gets going."""
        grant = await self._line.wait(request)
        if grant is None:
            return None
        for node in grant.nodes:
            self.workers.get(node)
        return lease_of(grant)

    async def more_nodes(self, request: Request) -> Sequence[str]:
        """Wait in line for more nodes."""
        grant = await self._line.wait(request)
        if grant is None or request.lease is None:
            return ()
        for node in grant.nodes:
            self.workers.get(node)
        request.lease.nodes.extend(grant.nodes)
        return grant.nodes

    def withdraw(self, request: Request) -> None:
        """Leave the line."""
        self._line.withdraw(request)

    async def drop_nodes(self, lease: Lease, nodes: Sequence[str]) -> None:
        """Give some nodes back; their workers stay warm."""
        self._line.give_back(lease, list(nodes), qpu=False)

    async def drop_qpu(self, lease: Lease) -> None:
        """Give the QPU back."""
        self._line.give_back(lease, [], qpu=True)

    async def free(self, lease: Lease) -> None:
        """Give everything back."""
        lease.ended = True
        self._line.give_back(lease, list(lease.nodes), qpu=True)

    async def execute(self, nodes: Sequence[str], work: Work, lease: Lease) -> Ran:
        """Run a task in the worker of its first node."""
        task = work.task
        if task.ranks:
            environment, log = task_environment(nodes, work), task_log(self.logs, work)
            return await run_ranks(task, mpiexec(task.ranks), self.worker_set_up, environment, log)
        try:
            return await run_task(self.workers.get(nodes[0]), nodes, work, self.logs)
        except WorkerDied as error:
            raise TaskFailed(f"task {task.name} on {nodes[0]} {error}", job=work.job) from None

    def check_task(self, task: Task) -> None:
        """Refuse what no node could ever run."""
        self.site.check_task(task)
        require_mpi(task)

    def nodes_are_short(self) -> bool:
        """Whether somebody waits for nodes, other than for spare work."""
        return self._line.nodes_are_short()

    def who_waits(self) -> list[str]:
        """Who stands in line, in plain words."""
        return self._line.who_waits()

    def require_all_free(self) -> None:
        """Local slots end with the process: nothing can be leaked past it."""

    async def close(self) -> None:
        """End all workers and solvers."""
        for device in self.devices:
            await device.close()
        self.workers.close()


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


def make_local_world(context: RunContext, clock: RealClock) -> LocalWorld:
    """Slots of this machine, with a log for each worker."""
    logs = None
    if context.directory is not None:
        logs = context.directory / "logs"
        logs.mkdir(mode=0o700, exist_ok=True)
    return LocalWorld(context.site, clock, context.worker_set_up, logs, context.record)


ENTRY = RealTimeEntry(make_local_world, measure)
