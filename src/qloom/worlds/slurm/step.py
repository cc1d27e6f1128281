"""The worker of a node: a step of the allocation, spoken to over srun's own standard input and output."""

from __future__ import annotations

import asyncio
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from qloom import worker
from qloom.slurm.environment import clean_environment
from qloom.worker import die_with_parent
from qloom.worlds.process import WorkerProcess

END_S = 40.0  # srun itself waits for 32 s until the processes of a step have ended
LOOK_S = 0.005


def srun_words(job_id: str, node: str, *, het: bool, python: str) -> list[str]:
    """The words that start a worker on a node of an allocation, with all its cores, beside whatever runs there."""
    group = ["--het-group=0"] if het else []
    where = [f"--jobid={job_id}", *group, "--nodes=1", "--ntasks=1", f"--nodelist={node}"]
    how = ["--overlap", "--unbuffered", "--mpi=none", "--cpu-bind=none", "--job-name=qloom-worker"]
    return ["srun", *where, *how, python or sys.executable, "-u", worker.__file__]


class StepWorker(WorkerProcess):
    """A worker on a node. Asked to end, srun ends all processes of its step; that takes a moment."""

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
        """End an idle worker: it goes when its standard input ends."""
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
