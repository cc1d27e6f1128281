"""The workers on the nodes of Slurm jobs: steps, spoken to over the standard input and output of their `srun`."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from qloom import worker
from qloom.aio import TaskScope
from qloom.journal.event import Record
from qloom.ports import Clock
from qloom.slurm.client import FIRST_PAUSE_S, LONGEST_PAUSE_S, Client, controller_is_down
from qloom.slurm.environment import clean_environment
from qloom.slurm.pace import Urgency
from qloom.worker import die_with_parent
from qloom.worlds.process import WorkerDied, WorkerProcess
from qloom.worlds.slurm.lease_jobs import LeaseJob
from qloom.worlds.workers import note_start

END_S = 40.0  # srun itself waits for 32 s until the processes of a step have ended
LOOK_S = 0.005
REVOKED = "job credential revoked"  # a node that was given back and regained, until the second has changed
REVOKED_S, REVOKED_PAUSE_S = 3.0, 0.2
MOST_TRIES = 8  # of a worker, while srun cannot reach what the driver can


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
