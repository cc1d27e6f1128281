"""Slurm's own programs, called with a time limit; while the controller does not answer, they are called again."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from qloom.errors import InputError, JobError
from qloom.journal.event import Event, Record
from qloom.journal.events import SlurmAnswers, SlurmSilent, SlurmThrottled
from qloom.site import Slurm
from qloom.slurm import completion
from qloom.slurm.environment import client_environment
from qloom.slurm.pace import Pace, Urgency
from qloom.slurm.squeue import FORMAT, QueuedJob, read_jobs

CALL_TIMEOUT_S = 20.0
NO_ANSWER = 124  # the code of a call that took too long
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 15.0
DEFAULT_BACKFILL_INTERVAL_S = 30.0
PROGRAMS = ("salloc", "scancel", "scontrol", "sinfo", "squeue", "srun")
# What clients say when the controller, or the way to it, is down for now.
DOWN = (
    "unable to contact slurm controller",
    "zero bytes were transmitted or received",
    "socket timed out",
    "connection refused",
    "connect failure",
    "transport endpoint is not connected",
    "slurm backup controller in standby mode",
    "controller not responding",
    "protocol authentication error",
    "munge encode failed",
    "resource temporarily unavailable",
)
AWAY = ("drain", "down", "fail", "maint")  # as the states of such nodes begin
GONE = ("invalid job id", "already completing or completed")
_COMPLETE = (sys.executable, "-I", completion.__file__)
_RELEASES = ("scancel", "scontrol", sys.executable)


@dataclass(frozen=True)
class Answer:
    """How a call ended and what it said."""

    code: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        """The last line of its complaint, without the name of the program."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip() and not line.startswith("Try ")]
        last = lines[-1] if lines else f"exit code {self.code}"
        return last.removeprefix("allocation failure: ").rpartition("error: ")[2]


def controller_is_down(said: str) -> bool:
    """Whether a complaint means that the controller cannot be reached for now."""
    return any(text in said.lower() for text in DOWN)


def call_once(*words: str, timeout_s: float = CALL_TIMEOUT_S) -> Answer:
    """One call, awaited in place: for what happens before or after a run."""
    if shutil.which(words[0]) is None:
        raise InputError(f"there is no Slurm on this machine: {words[0]} is not found", hint="qloom testbed up")
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=client_environment(),
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return _no_answer(words[0], timeout_s)
    return Answer(done.returncode, done.stdout, done.stderr)


def read_config(text: str) -> dict[str, str]:
    """The settings in the output of `scontrol show config`."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def backfill_interval_s(config: Mapping[str, str]) -> float:
    """Seconds between two cycles of the backfill scheduler, which starts het jobs and whoever has to wait."""
    found = re.search(r"\bbf_interval=(\d+)", config.get("SchedulerParameters", ""))
    return DEFAULT_BACKFILL_INTERVAL_S if found is None else float(found[1])


async def call_program(
    *words: str,
    timeout_s: float = CALL_TIMEOUT_S,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Answer:
    """One call; a program that takes longer than `timeout_s` is killed, and its answer is that nobody answers."""
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=client_environment() if environment is None else environment,
        cwd=cwd,
        start_new_session=True,  # Ctrl-C is the caller's to handle
    )
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(), timeout_s)
    except asyncio.CancelledError:
        process.kill()
        await process.communicate()  # it is gone before the loop is
        raise
    except TimeoutError:
        process.kill()
        await process.communicate()
        return _no_answer(words[0], timeout_s)
    return Answer(process.returncode or 0, stdout.decode(errors="replace"), stderr.decode(errors="replace"))


def _no_answer(program: str, timeout_s: float) -> Answer:
    return Answer(NO_ANSWER, "", f"{program}: socket timed out: no answer in {timeout_s:g} s")


class Client:
    """The way to the controller, for all jobs of a run."""

    def __init__(
        self,
        record: Record | None = None,
        within: Path | None = None,
        most_calls_per_s: float = Slurm.most_calls_per_s,
    ) -> None:
        self._record = record
        throttled = partial(self._note, SlurmThrottled(most_calls_per_s=most_calls_per_s))
        self._pace = Pace(most_calls_per_s, throttled)
        self._down_since: float | None = None
        self._library: str | None = None  # Slurm's own; "" if it is not found
        self.calls = 0
        self.was_silent = False
        # scontrol leaves scripts behind, and a driver that is killed this directory: better within that of its run
        self._temporary = tempfile.TemporaryDirectory(prefix="qloom-slurm-", dir=within)
        self.directory = Path(self._temporary.name)

    def turn(self, urgency: Urgency) -> asyncio.Future[None]:
        """What a call of a program of Slurm's awaits first; a turn that is cancelled before it came costs nothing."""
        return self._pace.turn(urgency)

    async def call(self, *words: str, unless: Callable[[], Awaitable[str | None]] | None = None) -> Answer:
        """Call a program until the controller has answered, however long that takes.

        A call that timed out may have come through: `unless` says before each repetition what came of it, if it did.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            answer = await self._once(words)
            if answer.code == 0 or not controller_is_down(answer.stderr):
                self.note_answer()
                return answer
            self.note_silence(answer.complaint)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if unless is not None and (found := await unless()) is not None:
                return Answer(0, found, "")

    async def _once(self, words: Sequence[str]) -> Answer:
        await self.turn(Urgency.RELEASE if words[0] in _RELEASES else Urgency.USE)
        self.calls += 1
        return await call_program(*words, cwd=self.directory)

    def note_silence(self, complaint: str) -> None:
        """The controller did not answer; the journal keeps when that began."""
        self.was_silent = True
        if self._down_since is None:
            self._down_since = asyncio.get_running_loop().time()
            self._note(SlurmSilent(complaint=complaint))

    def note_answer(self) -> None:
        """The controller answers; if it did not before, the journal keeps for how long."""
        if self._down_since is not None:
            seconds = asyncio.get_running_loop().time() - self._down_since
            self._down_since = None
            self._note(SlurmAnswers(seconds=round(seconds, 3)))

    def _note(self, event: Event) -> None:
        if self._record is not None:
            self._record(event)

    async def jobs(self, *ids: str) -> list[QueuedJob]:
        """These jobs (or all of this user's), ended ones included as long as the controller remembers them."""
        chosen = ["-j", ",".join(ids)] if ids else ["--me"]
        answer = await self.call("squeue", "-h", "-t", "all", "-o", FORMAT, *chosen)
        if answer.code != 0 and not any(text in answer.stderr.lower() for text in GONE):
            raise JobError(f"squeue says: {answer.complaint}")
        return read_jobs(answer.stdout)

    async def is_away(self, partition: str) -> bool:
        """Whether all nodes of a partition are down or drained."""
        answer = await self.call("sinfo", "-h", "-N", "-p", partition, "-o", "%T")
        states = answer.stdout.split()
        return bool(states) and all(state.startswith(AWAY) for state in states)

    async def cancel(self, *ids: str) -> None:
        """End jobs, or components of het jobs; those that have ended already are no mistake."""
        answer = await self.call("scancel", *ids)
        said = [line for line in answer.stderr.lower().splitlines() if not any(text in line for text in GONE)]
        if answer.code != 0 and said:
            raise JobError(f"scancel says: {answer.complaint}", hint=f"scancel {' '.join(ids)}")

    async def complete(self, *ids: str) -> None:
        """Try to let jobs, or components of het jobs, end by themselves with exit code 0; see `completion`."""
        if self._library is None:
            config = read_config((await self.call("scontrol", "show", "config")).stdout)
            self._library = f"{config['PluginDir']}/libslurmfull.so" if "PluginDir" in config else ""
        if not self._library:
            return
        wholes = dict.fromkeys(id.partition("+")[0] for id in ids)
        answer = await self.call("squeue", "-h", "-o", "%i %A", "-j", ",".join(wholes))
        known = [line.split() for line in answer.stdout.splitlines()]
        numbers = [number for id, number in known if id in ids or id.partition("+")[0] in ids]
        if numbers:
            await self.call(*_COMPLETE, self._library, *numbers)

    async def cancel_named(self, name: str) -> None:
        """End what a request may have left in the queue; names are unique."""
        await self.call("scancel", "--me", f"--name={name}")

    def close(self) -> None:
        """Remove what the programs have left in their directory."""
        self._temporary.cleanup()
