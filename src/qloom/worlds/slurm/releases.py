"""How what a run holds is given back to Slurm: whole jobs, nodes of a job, the component that stands for a QPU.

What ends well ends by itself, so that accounting has it as COMPLETED; what a job that failed has held is cancelled.
Nothing is requested here, and nothing is run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from qloom.journal.events import DriverReleased, ResizeRefused
from qloom.slurm.client import Client
from qloom.slurm.endings import cancel, complete, finish
from qloom.world import Clock, Lease
from qloom.worlds.slurm.driver_job import DRIVER
from qloom.worlds.slurm.lease_jobs import ChangeRecorder, LeaseJob, LeaseJobs, engine_us
from qloom.worlds.slurm.workers import StepWorkers


class SlurmReleases:
    """Ends jobs, after the workers on their nodes; each verb returns when Slurm ended them, by the run's clock."""

    def __init__(
        self, client: Client, clock: Clock, held: LeaseJobs, workers: StepWorkers, record: ChangeRecorder
    ) -> None:
        self._client = client
        self._clock = clock
        self._held = held
        self._workers = workers
        self._record_change = record

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
            answer = await self._client.call("scontrol", "update", f"JobId={job.id}", f"NodeList={','.join(kept)}")
            if answer.code != 0:
                refused = ResizeRefused(lease=lease.id, engine_id=job.id, complaint=answer.complaint)
                self._record_change(lease.id, refused)
            gone = self._held.read_back(lease, job, await self._client.jobs(job.id))
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
        began_us = self._clock.now_us()
        if qpu == job.id and job.salloc is not None:
            ended_us = await self._end_jobs(lease, [job])
        else:
            end_component = cancel if lease.failed else finish
            ended_us = engine_us(self._clock, began_us, await end_component(self._client, [str(qpu)]))
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
        began_us = self._clock.now_us()
        ids, sallocs = [job.id for job in jobs], [job.salloc for job in jobs if job.salloc is not None]
        if lease.failed:
            end_s = await cancel(self._client, ids)
            await asyncio.gather(*(salloc.close() for salloc in sallocs))
        else:
            end_s = await complete(self._client, ids, sallocs)
        return engine_us(self._clock, began_us, end_s)
