"""The world of a cluster under Slurm: a lease is one Slurm job, and one more for each time it has grown.

Its parts do the work: `SlurmRequests` asks for jobs and `SlurmReleases` ends them, `LeaseJobs` counts what is held,
`StepWorkers` and `TaskRunner` run tasks, `QueueWatch` looks at the queue, `Ceilings` stops the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from qloom.aio import TaskScope, report_failure
from qloom.errors import AllocationEnded, JobError
from qloom.journal.event import Record
from qloom.journal.events import AllocationTaken, DriverStarted, SlurmCalls
from qloom.model import Task, Work
from qloom.mpi.launch import require_mpi
from qloom.site import Site
from qloom.slurm.client import Client
from qloom.slurm.endings import how_it_ended
from qloom.slurm.facts import ClusterFacts
from qloom.slurm.squeue import QueuedJob
from qloom.slurm.tags import Tag
from qloom.world import Lease, Ran, Request, World
from qloom.worlds.answers import WorkerAnswers, emulate
from qloom.worlds.realtime import LocalWorkers, RealClock
from qloom.worlds.slurm.driver_job import DRIVER, DriverJob
from qloom.worlds.slurm.lease_jobs import (
    Ceilings,
    ChangeRecorder,
    CountedDevice,
    LeaseJob,
    LeaseJobs,
    allocation_ended,
    unobserved_us,
)
from qloom.worlds.slurm.releases import SlurmReleases
from qloom.worlds.slurm.requests import QueueWatch, SlurmRequests
from qloom.worlds.slurm.workers import StepWorkers, TaskRunner


@dataclass
class SlurmWorld(World):
    """Nodes of a partition, and QPUs that are gres or licences."""

    site: Site
    facts: ClusterFacts
    clock: RealClock
    tag: Tag
    worker_set_up: dict[str, Any]
    logs: Path | None = None  # none: they go when the run ends
    record: Record | None = None
    used_node_s: float = 0.0  # of the ceilings, before the run was resumed
    used_qpu_s: float = 0.0

    def __post_init__(self) -> None:
        slurm, facts = self.site.slurm, self.facts
        self.node_names = list(facts.nodes)
        qpus = tuple(replace(qpu, shares=facts.shares[qpu.name]) for qpu in self.site.qpus)
        self.site = replace(
            self.site,
            qpus=qpus,
            cpus_per_node=self.site.cpus_per_node or facts.cpus,
            memory_per_node_mb=self.site.memory_per_node_mb or facts.memory_mb,
        )
        self.client = Client(self.record, self.logs, slurm.most_calls_per_s)
        logs, set_up = self.logs or self.client.directory, self.worker_set_up
        self._record_change = ChangeRecorder(self.record)
        self._scope = TaskScope(report_failure)
        self._ceilings = Ceilings(self.clock, slurm, self.used_node_s, self.used_qpu_s, self._stop)
        self._held = LeaseJobs(self._ceilings, facts)
        self._requests = SlurmRequests(self.site, self.tag, self.client, self.clock, self._held, self._report_taken)
        self._local = LocalWorkers(self.clock, set_up, logs, self.record)
        on_nodes = {**set_up, "keep_warm_s": slurm.keep_warm_s}
        self._workers = StepWorkers(self.client, self.clock, on_nodes, logs, slurm.python, self.record)
        self._tasks = TaskRunner(
            *(self.client, self._held, self._workers, set_up, logs, slurm.python),
            *(self._record_change, self._report_taken),
        )
        self._releases = SlurmReleases(self.client, self.clock, self._held, self._workers, self._record_change)
        emulated = [emulate(qpu, self.clock, WorkerAnswers(qpu, self._local.get, logs)) for qpu in qpus]
        self._counted = [CountedDevice(device, self._ceilings, self._held.has_qpu) for device in emulated]
        self.devices = self._counted
        self.shares = {qpu.name: qpu.shares for qpu in qpus}
        self._leaked = False
        away = None if slurm.licences else partial(self.client.is_away, slurm.quantum_partition)
        self._watch = QueueWatch(self.client, slurm.poll_s, self._requests, self._held, self._record_change, away)

    # Asking

    async def grant(self, request: Request) -> Lease | None:
        """Wait in Slurm's queue for a new lease; workers start while the job gets going."""
        shares = self.facts.shares_of(request)
        self._ceilings.require_room()
        granted = await self._requests.ask(request, shares)
        if granted is None:
            self._ceilings.require_room()
            return None
        job = granted.job
        self._hold(request, job, shares)
        device = request.device if shares else None
        return Lease(request.id, request.job, list(job.nodes), device, shares, granted.start_us, job.id)

    async def more_nodes(self, request: Request) -> Sequence[str]:
        """Wait for a second allocation, of as many nodes as there are by then; if somebody cancels it, for none."""
        lease = request.lease
        self._ceilings.require_room()
        try:
            granted = await self._requests.ask(request, 0)
        except AllocationEnded:
            granted = None
        if granted is None or lease is None:
            self._ceilings.require_room()
            return ()
        job = granted.job
        self._hold(request, job, 0)
        lease.engine_us, lease.engine_id = granted.start_us, job.id
        lease.nodes.extend(job.nodes)
        return tuple(job.nodes)

    def adopt(self, driver: DriverJob) -> Lease:
        """Take the driver's own Slurm job as a lease, which counts from its start and ends with the driver."""
        job = self._held.driver = LeaseJob(driver.id, list(driver.nodes), driver.qpu, driver.end_s)
        start_us = unobserved_us(self.clock, driver.start_s)
        weight = round(1 / self.facts.cpus, 6) if driver.core_of else None
        self._ceilings.nodes.change(weight or 0.0)
        device = driver.device
        if device is not None and device not in self.facts.shares:
            device = self.site.qpus[0].name  # a broker that only jobs know of has another name for it
        nodes = len(job.nodes)
        self._hold(Request(DRIVER, DRIVER, nodes, nodes, driver.hold, device), job, driver.shares)
        self._record_change(
            DRIVER,
            DriverStarted(
                nodes=[driver.core_of] if driver.core_of else list(job.nodes),
                weight=weight,
                device=device,
                hold=driver.hold.value if device else None,
                engine_us=start_us,
                engine_id=job.id,
            ),
        )
        return Lease(DRIVER, DRIVER, list(job.nodes), device, driver.shares, start_us, job.id)

    def _hold(self, request: Request, job: LeaseJob, shares: int) -> None:
        """Count a job that was granted, and start its workers."""
        self._held.add(request, job, shares)
        for node in job.nodes:
            self._workers.begin(job, node)

    def withdraw(self, request: Request) -> None:
        """Leave the queue."""
        self._requests.withdraw(request)

    # Giving back

    async def drop_nodes(self, lease: Lease, nodes: Sequence[str]) -> int | None:
        """Give nodes back; Slurm may refuse to shrink a job, then the nodes stay."""
        return await self._releases.drop_nodes(lease, nodes)

    async def drop_qpu(self, lease: Lease) -> int | None:
        """Give the QPU back."""
        return await self._releases.drop_qpu(lease)

    async def free(self, lease: Lease) -> int | None:
        """Give everything back."""
        return await self._releases.free(lease)

    # Working

    async def execute(self, nodes: Sequence[str], work: Work, lease: Lease) -> Ran:
        """Run a task in the worker of its first node, or over the nodes as a separate step if it uses MPI."""
        ran: Ran = await self._ceilings.while_there_is_room(lambda: self._tasks.run(nodes, work, lease))
        return ran

    def check_task(self, task: Task) -> None:
        """Refuse what no node could ever run."""
        self.site.check_task(task)
        require_mpi(task, "srun")

    def executes_quantum(self) -> bool:
        """Whether a QPU of the driver's own executes a task; one of a broker outlives the driver."""
        return any(device.is_executing() for device in self._counted)

    def nodes_are_short(self) -> bool:
        """Whether another job of this run waits for nodes, other than for spare work."""
        return any(asked.least_nodes and asked.eligible and not asked.spare for asked, _ in self._requests.open())

    def who_waits(self) -> list[str]:
        """Who waits in Slurm's queue, in plain words."""
        return [f"job {request.job} waits in Slurm as {name}" for request, name in self._requests.open()]

    # The end

    def _report_taken(self, job: LeaseJob, queued: QueuedJob | None, of: str, lease: str) -> AllocationEnded:
        """Record that Slurm has ended a job, and return the error for the job `of` the run that it was for."""
        self._record_change(job.id, AllocationTaken(engine_id=job.id, lease=lease, how=how_it_ended(queued)))
        return self._ceilings.error() or allocation_ended(job.id, queued, of)

    def _stop(self) -> None:
        """A ceiling is reached: give back all that the run holds or asks for, but for the driver's own job."""
        self._requests.withdraw_all()
        if ids := [job.id for job in self._held.requested()]:
            self._scope.spawn(self.client.cancel(*ids))

    def require_all_free(self) -> None:
        """After a run: whatever is still held was leaked."""
        if self._leaked:
            raise JobError("the run is over and something is still held or asked for", hint="this is a bug in qloom")

    async def close(self) -> None:
        """Cancel what is left, and end all workers."""
        await self._watch.close()
        self._ceilings.close()
        jobs = self._held.requested()
        self._leaked = bool(jobs or self._requests)
        await asyncio.gather(*(self._workers.close(job, job.nodes) for job in self._held.all()))
        if jobs:
            await self.client.cancel(*(job.id for job in jobs))
            await asyncio.gather(*(job.salloc.close() for job in jobs if job.salloc is not None))
        self._held.clear()
        await self._watch.release_strays()
        await self._scope.aclose()
        for device in self.devices:
            await device.close()
        self._local.close()
        self.client.close()
        if self.client.calls:
            self._record_change("run", SlurmCalls(count=self.client.calls))
