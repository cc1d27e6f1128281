"""The workers on the nodes of Slurm jobs, and the tasks that run on the nodes of a lease.

A worker is a step, spoken to over the standard input and output of its `srun`. A task runs in the worker of a node,
or over several nodes as a separate MPI step.

A task that failed because its allocation or a node was lost fails with that reason; it asks for nothing new.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from qloom import worker
from qloom.aio import TaskScope, run_to_end
from qloom.errors import JobError, NodeLost, TaskFailed
from qloom.journal.event import Record
from qloom.journal.events import NodesLost
from qloom.logs import task_log
from qloom.model import Work
from qloom.mpi.launch import run_ranks, srun
from qloom.slurm.client import FIRST_PAUSE_S, LONGEST_PAUSE_S, Client, Urgency
from qloom.slurm.commands import clean_environment, controller_is_down
from qloom.slurm.endings import wait_past_completing
from qloom.worker import die_with_parent
from qloom.world import Clock, Lease, Ran
from qloom.worlds.process import WorkerDied, WorkerProcess
from qloom.worlds.realtime import note_start, run_task, task_environment
from qloom.worlds.slurm.lease_jobs import ChangeRecorder, LeaseJob, LeaseJobs
from qloom.worlds.slurm.requests import ReportTaken

END_S = 40.0  # srun itself waits for 32 s until the processes of a step have ended
LOOK_S = 0.005
REVOKED = "job credential revoked"  # a node that was given back and regained, until the second has changed
REVOKED_S, REVOKED_PAUSE_S = 3.0, 0.2
MOST_TRIES = 8  # of a worker, while srun cannot reach what the driver can

_AT_ONCE = "hold all nodes from the start (workflow, offload, min_nodes)"
_APART = "qloom submit --driver beside leaves the driver's own job out"


def srun_words(job_id: str, node: str, *, het: bool, python: str) -> list[str]:
    """The words that start a worker on a node of an allocation, with all its cores, beside whatever runs there."""
    group = ["--het-group=0"] if het else []
    where = [f"--jobid={job_id}", *group, "--nodes=1", "--ntasks=1", f"--nodelist={node}"]
    how = ["--overlap", "--unbuffered", "--mpi=none", "--cpu-bind=none", "--job-name=qloom-worker"]
    return ["srun", *where, *how, python or sys.executable, "-u", worker.__file__]


class StepWorker(WorkerProcess):
    """A worker on a node. On SIGTERM srun ends all processes of its step; that takes a moment."""

    def __init__(
        self, job_id: str, node: str, set_up: dict[str, Any], log: Path, *, het: bool = False, python: str = ""
    ) -> None:
        words = srun_words(job_id, node, het=het, python=python)
        with_driver = partial(die_with_parent, signal.SIGTERM)
        super().__init__(f"{job_id}.{node}", set_up, log, words, clean_environment(), with_driver)

    def _stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    async def close(self) -> None:
        """End an idle worker: it exits when its standard input ends."""
        if self.alive:
            self._let_go(lambda: None)
        await self.gone()

    async def gone(self) -> None:
        """Wait until srun has ended, and with it all processes on the node."""
        began_s = self._loop.time()
        while self._process.poll() is None:
            if self._loop.time() - began_s > END_S:
                self._process.kill()
            await asyncio.sleep(LOOK_S)


class StepWorkers:
    """One worker for each node of each Slurm job, begun when the nodes are granted."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        set_up: dict[str, Any],
        logs: Path,
        python: str,
        record: Record | None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._set_up = set_up
        self._logs = logs
        self._python = python
        self._record = record
        self._scope = TaskScope()
        self._known: dict[tuple[str, str], asyncio.Task[StepWorker]] = {}  # by Slurm job and node

    def begin(self, job: LeaseJob, node: str) -> asyncio.Task[StepWorker]:
        """The worker of a node, or its beginning; a dead one is replaced."""
        known = self._known.get((job.id, node))
        if known is None or (known.done() and (known.cancelled() or known.exception() or not known.result().alive)):
            known = self._known[job.id, node] = self._scope.start(self._start(job, node))
            known.add_done_callback(lambda started: started.cancelled() or started.exception())
            known.add_done_callback(note_start(node, self._clock, self._record))
        return known

    async def _start(self, job: LeaseJob, node: str) -> StepWorker:
        loop = asyncio.get_running_loop()
        until_s, pause_s, tries = loop.time() + REVOKED_S, FIRST_PAUSE_S, 0
        log = self._logs / f"{job.id}.{node}.log"
        while True:
            await self._client.turn(Urgency.USE)
            self._client.calls += 1
            known = log.stat().st_size if log.exists() else 0
            worker = StepWorker(job.id, node, self._set_up, log, het=job.is_het, python=self._python)
            try:
                await worker.ready
                return worker
            except asyncio.CancelledError:
                worker.kill()
                await worker.gone()
                raise
            except WorkerDied:
                await worker.gone()
                complaint = _complaint_of_srun(log, known)
                if controller_is_down(complaint) and tries < MOST_TRIES:
                    tries += 1
                    self._client.note_silence(f"no step on {node}")
                    await asyncio.sleep(pause_s)
                    await self._client.jobs(job.id)  # however long it takes until the controller answers
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                elif REVOKED in complaint.lower() and loop.time() < until_s:
                    await asyncio.sleep(REVOKED_PAUSE_S)
                else:
                    raise

    async def close(self, job: LeaseJob, nodes: Sequence[str]) -> None:
        """End the workers of some nodes, before these are given back."""
        known = [self._known.pop((job.id, node), None) for node in nodes]
        await asyncio.gather(*(_close(beginning) for beginning in known if beginning is not None))


def _complaint_of_srun(log: Path, known: int) -> str:
    """What srun itself has complained of since; all else in a log is the user's own, whatever it says."""
    lines = log.read_bytes()[known:].decode(errors="replace").splitlines()
    return "\n".join(line for line in lines if line.startswith("srun: error:"))


async def _close(beginning: asyncio.Task[StepWorker]) -> None:
    if not beginning.done():
        beginning.cancel()
        await asyncio.wait([beginning])
    if not beginning.cancelled() and beginning.exception() is None:
        await beginning.result().close()


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
            return await run_task(worker, nodes, work, self._logs)
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
        log, environment = task_log(self._logs, work), task_environment(nodes, work)
        await self._client.turn(Urgency.USE)
        self._client.calls += 1
        try:
            return await run_ranks(work.task, launch, self._worker_set_up, environment, log, self._logs)
        except TaskFailed as error:
            raise await self._find_cause(lease, job, nodes, error) from None

    async def _find_cause(self, lease: Lease, job: LeaseJob, nodes: Sequence[str], failed: TaskFailed) -> JobError:
        """Find out why a task failed: Slurm took its allocation, a node was lost, or (`failed`) the task itself."""
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
