"""Waiting for Slurm jobs: one question for all of them, the more often the younger they are."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from streamflow.core.exception import WorkflowExecutionException
from streamflow.log_handler import logger

Ask = Callable[[list[str]], Awaitable[tuple[str, int]]]  # a command on the login node: its output and exit code

ENDED = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
)
SOONEST_S = 0.05
SHARE_OF_AGE = 0.1  # what waiting adds to a job is at most this part of it
PATIENCE_S = 300.0  # a slurmctld may be restarted meanwhile


@dataclass(frozen=True)
class Ended:
    """How a job ended, as Slurm tells it."""

    id: str
    state: str
    exit_code: int
    signal: int
    reason: str
    stdout: str
    nodes: str
    start_us: int | None
    end_us: int | None

    @property
    def ran(self) -> bool:
        """Whether the exit code is the command's own."""
        return self.state in ("COMPLETED", "FAILED") and not self.signal

    def why(self) -> str:
        """One line for a log."""
        told = [f"Slurm job {self.id} is {self.state}"]
        if self.reason and self.reason not in ("None", "NonZeroExitCode"):
            told.append(f"reason {self.reason}")
        if self.signal:
            told.append(f"signal {self.signal}")
        if self.state == "FAILED" and self.exit_code:
            told.append(f"exit code {self.exit_code}")
        return ", ".join(told)


class Watch:
    """Tells when jobs start and end. `ask` runs a command where Slurm's are."""

    def __init__(self, ask: Ask, longest_s: float, started: Callable[[str, str], None]) -> None:
        self._ask = ask
        self._longest_s = longest_s
        self._started = started
        self._waiting: dict[str, tuple[float, asyncio.Future[Ended]]] = {}
        self._seen_running: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None

    async def end_of(self, job: str) -> Ended:
        """Wait for a job's end."""
        future: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._waiting[job] = (time.monotonic(), future)
        self._changed.set()
        if self._poller is None or self._poller.done():
            self._poller = asyncio.ensure_future(self._poll())
        try:
            return await future
        finally:
            self._waiting.pop(job, None)

    async def close(self) -> None:
        """Ask about nothing any more; a question that is out is seen through."""
        self._waiting.clear()
        self._changed.set()
        if self._poller is not None:
            await asyncio.wait([self._poller])

    async def _poll(self) -> None:
        silent_since: float | None = None
        while self._waiting:
            await self._pause()
            jobs = list(self._waiting)
            if not jobs:
                return
            told, code = await self._ask(
                ["squeue", "-h", "-t", "all", "-j", ",".join(jobs), "-o", "'%i|%T|%N'", "2>&1"]
            )
            if code != 0 and "Invalid job id" not in told:
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > PATIENCE_S:
                    self._fail(WorkflowExecutionException(f"Slurm has not answered for {PATIENCE_S:.0f} s: {told}"))
                    return
                logger.warning(f"Slurm does not answer, asking again: {told}")
                continue
            silent_since = None
            states = {row[0]: row for row in (line.split("|") for line in told.splitlines()) if len(row) == 3}
            for job in jobs:
                _, state, nodes = states.get(job, (job, "", ""))
                if state in ("RUNNING", "COMPLETING") and job not in self._seen_running:
                    self._seen_running[job] = None
                    self._started(job, nodes)
                elif not state or state in ENDED:
                    await self._settle(job)

    async def _pause(self) -> None:
        age_s = time.monotonic() - max(since for since, _ in self._waiting.values())
        self._changed.clear()
        try:
            async with asyncio.timeout(min(self._longest_s, max(SOONEST_S, SHARE_OF_AGE * age_s))):
                await self._changed.wait()  # a new job is asked about soon
                await asyncio.sleep(SOONEST_S)
        except TimeoutError:
            pass

    async def _settle(self, job: str) -> None:
        _, future = self._waiting.pop(job, (0.0, None))
        if future is None or future.done():
            return
        try:
            future.set_result(await how_it_ended(self._ask, job))
        except WorkflowExecutionException as error:
            future.set_exception(error)

    def _fail(self, error: Exception) -> None:
        for _, future in self._waiting.values():
            if not future.done():
                future.set_exception(error)


async def how_it_ended(ask: Ask, job: str) -> Ended:
    """From slurmctld while it remembers the job, then from the accounting."""
    told, code = await ask(["scontrol", "show", "-o", "job", job, "2>&1"])
    if code == 0 and (found := read_scontrol(told)) is not None:
        return found
    told, code = await ask(["sacct", "-X", "-n", "-P", "-j", job, "-o", "State,ExitCode,NodeList,Start,End", "2>&1"])
    fields = told.splitlines()[0].split("|") if code == 0 and told else []
    if len(fields) == 5:
        state, exits, nodes, start, end = fields
        exit_code, signal = (int(part) for part in exits.split(":"))
        return Ended(job, state.split()[0], exit_code, signal, "", "", nodes, _us(start), _us(end))
    raise WorkflowExecutionException(f"Slurm job {job}: neither scontrol nor sacct knows how it ended")


def read_scontrol(line: str) -> Ended | None:
    """One line of `scontrol show -o job`."""
    fields = dict(re.findall(r"(?:^|\s)([A-Za-z:/]+)=(\S*)", line))
    if "JobState" not in fields or "ExitCode" not in fields:
        return None
    exit_code, signal = (int(part) for part in fields["ExitCode"].split(":"))
    return Ended(
        fields.get("JobId", "?"),
        fields["JobState"],
        exit_code,
        signal,
        fields.get("Reason", ""),
        fields.get("StdOut", ""),
        fields.get("NodeList", ""),
        _us(fields.get("StartTime", "")),
        _us(fields.get("EndTime", "")),
    )


def _us(text: str) -> int | None:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1e6)
    except ValueError:  # Unknown
        return None
