"""Runs tasks on the nodes of a lease: in the worker of a node, or over several nodes as an MPI step of their own.

A task that failed because its allocation or a node was lost fails with that reason; it asks for nothing new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qloom.aio import run_to_end
from qloom.errors import JobError, NodeLost, TaskFailed
from qloom.journal.events import NodesLost
from qloom.model import Work
from qloom.mpi.launch import run_ranks, srun
from qloom.ports import Lease, Ran
from qloom.slurm.client import Client
from qloom.slurm.endings import wait_past_completing
from qloom.slurm.pace import Urgency
from qloom.worlds.process import WorkerDied
from qloom.worlds.slurm.ends import ChangeRecorder
from qloom.worlds.slurm.lease_jobs import LeaseJob, LeaseJobs
from qloom.worlds.slurm.requests import ReportTaken
from qloom.worlds.slurm.workers import StepWorkers
from qloom.worlds.workers import run_task, task_environment

_AT_ONCE = "hold all nodes from the start (workflow, offload, min_nodes)"
_APART = "qloom submit --driver beside leaves the driver's own job out"


class TaskRunner:
    """Runs the tasks of a run; `logs` is where their output goes, `python` what runs the ranks of a function."""

    def __init__(
        self,
        client: Client,
        held: LeaseJobs,
        workers: StepWorkers,
        worker_set_up: Mapping[str, Any],
        logs: Path,
        python: str,
        record: ChangeRecorder,
        report_taken: ReportTaken,
    ) -> None:
        self._client = client
        self._held = held
        self._workers = workers
        self._worker_set_up = worker_set_up
        self._logs = logs
        self._python = python
        self._record = record
        self._report_taken = report_taken

    async def run(self, nodes: Sequence[str], work: Work, lease: Lease) -> Ran:
        """Run a task in the worker of its first node, or over the nodes as a separate step if it uses MPI."""
        job = self._held.with_node(lease, nodes[0])
        if work.task.ranks:
            return await self._run_ranks(lease, job, nodes, work)
        beginning = self._workers.begin(job, nodes[0])
        try:
            worker = await asyncio.shield(beginning)
            return await run_task(worker, nodes, work)
        except asyncio.CancelledError:
            if beginning.done() and not beginning.cancelled() and beginning.exception() is None:
                worker = beginning.result()
                if not worker.alive:
                    await run_to_end(worker.gone())
            raise
        except WorkerDied as error:
            failed = TaskFailed(f"task {work.task.name} on {nodes[0]} {error}", job=work.job)
            raise await self._find_cause(lease, job, nodes, failed) from None

    async def _run_ranks(self, lease: Lease, job: LeaseJob, nodes: Sequence[str], work: Work) -> Ran:
        if any(node not in job.nodes for node in nodes):
            raise TaskFailed(
                f"task {work.task.name} uses MPI on {len(nodes)} nodes, which came as several Slurm jobs",
                job=work.job,
                hint=f"a step cannot span jobs: {_AT_ONCE if self._held.driver is None else _APART}",
            )
        group = 0 if job.is_het else None
        launch = srun(work.task.ranks, nodes, job.id, het_group=group, python=self._python)
        log = self._logs / f"{job.id}.{nodes[0]}.log"
        environment = task_environment(nodes, work)
        await self._client.turn(Urgency.USE)
        self._client.calls += 1
        try:
            return await run_ranks(work.task, launch, self._worker_set_up, environment, log, self._logs)
        except TaskFailed as error:
            raise await self._find_cause(lease, job, nodes, error) from None

    async def _find_cause(self, lease: Lease, job: LeaseJob, nodes: Sequence[str], failed: TaskFailed) -> JobError:
        """Why a task failed: its allocation was taken away, a node was lost, or (`failed`) the task itself."""
        queued = await wait_past_completing(self._client, job.classical)
        if queued is None or queued.state.stage != "holds":
            self._held.remove(lease, job)
            if job.salloc is not None:
                await job.salloc.close()
            if queued is not None and queued.state.name == "NODE_FAIL":
                return NodeLost(failed.message, job=lease.job)
            return self._report_taken(job, queued, lease.job, lease.id)
        lost = self._held.read_back(lease, job, [queued])
        if not lost and "node failure" in failed.message.lower():  # srun knows before the controller says so
            left = tuple(node for node in queued.nodes if node != nodes[0])
            lost = self._held.read_back(lease, job, [replace(queued, nodes=left)])
        if not any(node in lost for node in nodes):
            return failed
        self._record(job.id, NodesLost(lease=lease.id, engine_id=job.id, nodes=lost))
        return NodeLost(f"node {', '.join(lost)} failed under a task: {failed.message}", job=lease.job)
