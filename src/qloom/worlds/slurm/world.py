"""The world of a cluster under Slurm: a lease is one Slurm job, and one more for each time it has grown.

The world decides what becomes of leases. Its parts do the rest: `SlurmRequests` asks for jobs, `LeaseJobs` counts
what is held, `StepWorkers` and `TaskRunner` run tasks, `QueueWatch` looks at the queue, `Ceilings` stops the run.
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
from qloom.journal.events import AllocationTaken, DriverReleased, DriverStarted, ResizeRefused, SlurmCalls
from qloom.model import Task, Work
from qloom.mpi.launch import require_mpi
from qloom.ports import Lease, Ran, Request, World
from qloom.site import Site
from qloom.slurm.client import Client
from qloom.slurm.endings import cancel, complete, finish, how_it_ended
from qloom.slurm.facts import ClusterFacts
from qloom.slurm.squeue import QueuedJob
from qloom.slurm.tags import Tag
from qloom.worlds.answers import WorkerAnswers, emulate
from qloom.worlds.checks import check_task
from qloom.worlds.realtime import RealClock
from qloom.worlds.slurm.ceiling import Ceilings, CountedDevice
from qloom.worlds.slurm.driver_job import DRIVER, DriverJob
from qloom.worlds.slurm.ends import ChangeRecorder, allocation_ended, engine_us, unobserved_us
from qloom.worlds.slurm.lease_jobs import LeaseJob, LeaseJobs
from qloom.worlds.slurm.requests import SlurmRequests
from qloom.worlds.slurm.tasks import TaskRunner
from qloom.worlds.slurm.watch import QueueWatch
from qloom.worlds.slurm.workers import StepWorkers
from qloom.worlds.workers import LocalWorkers


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
        self._workers = StepWorkers(self.client, self.clock, set_up, logs, slurm.python, self.record)
        self._tasks = TaskRunner(
            *(self.client, self._held, self._workers, set_up, logs, slurm.python),
            *(self._record_change, self._report_taken),
        )
        emulated = [emulate(qpu, self.clock, WorkerAnswers(qpu, self._local.get)) for qpu in qpus]
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
        """The Slurm job that the driver lives in, as a lease: it counts from its start and ends with the driver."""
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
        """End the jobs that are given back whole, and shrink those of which nodes are kept."""
        whole: list[LeaseJob] = []
        for job in self._held.of(lease.id):
            dropped = [node for node in job.nodes if node in nodes]
            if not dropped:
                continue
            if len(dropped) == len(job.nodes) and job.qpu is None:
                whole.append(job)
                continue
            await self._workers.close(job, dropped)
            await self._shrink(lease, job, dropped)
        return await self._end(lease, whole)

    async def _shrink(self, lease: Lease, job: LeaseJob, dropped: list[str]) -> None:
        """A het job, or one without accounting, cannot be resized: then the nodes stay."""
        kept = [node for node in job.nodes if node not in dropped]
        if not job.is_het and kept:
            answer = await self.client.call("scontrol", "update", f"JobId={job.id}", f"NodeList={','.join(kept)}")
            if answer.code != 0:
                refused = ResizeRefused(lease=lease.id, engine_id=job.id, complaint=answer.complaint)
                self._record_change(lease.id, refused)
            gone = self._held.read_back(lease, job, await self.client.jobs(job.id))
            if job is self._held.driver and gone:
                self._record_change(DRIVER, DriverReleased(nodes=gone))

    async def drop_qpu(self, lease: Lease) -> int | None:
        """End the component that stands for the QPU, or the job that is nothing else."""
        holders = [job for job in self._held.of(lease.id) if job.qpu is not None]
        device = lease.device
        self._held.remove_qpu(lease)
        if not holders:
            return None
        (job,) = holders
        qpu, job.qpu = job.qpu, job.qpu if job.is_het else None
        if not job.nodes:
            self._held.remove(lease, job)
        began_us = self.clock.now_us()
        if qpu == job.id and job.salloc is not None:
            ended_us = await self._end_jobs(lease, [job])
        else:
            end_component = cancel if lease.failed else finish
            ended_us = engine_us(self.clock, began_us, await end_component(self.client, [str(qpu)]))
        if job is self._held.driver:
            self._record_change(DRIVER, DriverReleased(device=device, engine_us=ended_us))
        return ended_us

    async def free(self, lease: Lease) -> int | None:
        """End all jobs of a lease."""
        lease.ended = True  # Slurm may start what comes after it before it has answered
        self._held.remove_qpu(lease)
        ended_us = await self._end(lease, self._held.of(lease.id))
        self._held.remove_lease(lease)
        return ended_us

    async def _end(self, lease: Lease, jobs: list[LeaseJob]) -> int | None:
        if not jobs:
            return None
        await asyncio.gather(*(self._workers.close(job, job.nodes) for job in jobs))
        ended_us = await self._end_jobs(lease, jobs)
        for job in jobs:
            self._held.remove(lease, job)
        return ended_us

    async def _end_jobs(self, lease: Lease, jobs: list[LeaseJob]) -> int | None:
        """Complete whole jobs, or cancel them if the job that they were for has failed; when Slurm ended the last."""
        began_us = self.clock.now_us()
        ids, sallocs = [job.id for job in jobs], [job.salloc for job in jobs if job.salloc is not None]
        if lease.failed:
            end_s = await cancel(self.client, ids)
            await asyncio.gather(*(salloc.close() for salloc in sallocs))
        else:
            end_s = await complete(self.client, ids, sallocs)
        return engine_us(self.clock, began_us, end_s)

    # Working

    async def execute(self, nodes: Sequence[str], work: Work, lease: Lease) -> Ran:
        """Run a task in the worker of its first node, or over the nodes as a separate step if it uses MPI."""
        ran: Ran = await self._ceilings.while_there_is_room(lambda: self._tasks.run(nodes, work, lease))
        return ran

    def check_task(self, task: Task) -> None:
        """Refuse what no node could ever run."""
        check_task(task, self.site)
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
