"""A private Slurm whose jobs hold the shares that sessions need, and whose controller is killed now and then."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import time

from benchmarks.soak.patience import within

from qloom.errors import QloomError
from qloom.testbed import Testbed

JOB = ("-p", "quantum", "-n1", "--gres=qpu:1", "-t", "60", "--output=/dev/null", "--wrap", "sleep 3600")
NODE = "q1"
UNSAVED_S = 30.0  # what a controller has learned in the last seconds may not be in its files yet
SAVE_S = 30.0  # the controller saves its jobs some seconds after a change
ANSWER_S = 120.0  # Slurm answers by then, however often its controller is killed
START_S = 30.0  # a job that does not run by then was lost, or held after a failure


class Cluster:
    """Jobs on a testbed; whoever asks waits while its controller is away."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._names: dict[str, str] = {}  # of jobs: one that was submitted without an answer has a name, too
        self._began_s: dict[str, float] = {}
        self._numbers = itertools.count()
        self._last_kill_s = 0.0
        self._steady = asyncio.Lock()  # held while a job is begun or ended, and until the controller is dead

    async def begin_job(self) -> str:
        """A job that holds one share, once it runs; one that does not come to run is given up, as a user would."""
        while True:
            name = f"soak{next(self._numbers)}"
            try:
                async with asyncio.timeout(START_S):
                    async with self._steady:
                        job = (await self._persist("sbatch", "--parsable", f"--job-name={name}", *JOB)).strip()
                        self._names[job], self._began_s[job] = name, time.monotonic()
                        await self._runs(job)
                    return job
            except TimeoutError:
                await self._persist("scancel", f"--name={name}")
                if "drain" in await self._persist("sinfo", "-h", "-n", NODE, "-o", "%T"):
                    await self._persist("scontrol", "update", f"NodeName={NODE}", "State=RESUME")

    async def _runs(self, job: str) -> None:
        while True:
            if (await self._persist("squeue", "-h", "-j", job, "-o", "%T")).strip() == "RUNNING":
                return
            await asyncio.sleep(0.2)

    async def end_job(self, job: str) -> None:
        """Cancel it."""
        async with self._steady:
            await self._persist("scancel", f"--name={self._names.pop(job)}")
        self._began_s.pop(job, None)

    def may_have_lost(self, job: str) -> bool:
        """Whether the controller was killed soon after a job began: what it had not saved yet is gone."""
        return 0.0 < self._last_kill_s - self._began_s.get(job, 0.0) + 1.0 < UNSAVED_S

    async def kill_controller(self, for_s: float) -> None:
        """Kill slurmctld once it has saved all jobs, and start it again later.

        One that has not saved a job gives its number to another, and Slurm drains the node where the first runs.
        """
        async with self._steady:
            await self._saved()
            self._last_kill_s = time.monotonic()
            await asyncio.to_thread(self._testbed.kill, "slurmctld")
        try:
            await asyncio.sleep(for_s)
        finally:
            await asyncio.to_thread(self._testbed.start, "slurmctld")

    async def _saved(self) -> None:
        """Wait until the controller has written down all jobs; a small change makes it write."""
        since_s, state = time.time(), self._testbed.directory / "state" / "job_state"
        change = await self._persist("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true")
        await self._persist("scancel", change.strip())
        for _ in range(int(SAVE_S / 0.2)):
            if state.exists() and state.stat().st_mtime > since_s:
                return
            await asyncio.sleep(0.2)

    async def _persist(self, command: str, *arguments: str) -> str:
        """Ask Slurm until it answers; a job that it has forgotten is an empty answer."""
        async with within(ANSWER_S, "the soak", f"an answer to {command} {' '.join(arguments)}"):
            while True:
                try:
                    return await asyncio.to_thread(self._testbed.run, command, *arguments)
                except QloomError as error:
                    if "Invalid job id" in error.message:
                        return ""
                except subprocess.TimeoutExpired:
                    pass
                await asyncio.sleep(0.5)
