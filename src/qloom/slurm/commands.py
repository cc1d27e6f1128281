"""Slurm's programs, called once with a time limit, in an environment without anything of an outer job.

This module knows how they are found and how they complain, and nothing of what is asked of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qloom.errors import InputError

CALL_TIMEOUT_S = 20.0
NO_ANSWER = 124  # the code of a call that took too long
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
GONE = ("invalid job id", "already completing or completed")
# Variables by which a launcher finds out where it is; stale ones send a new step to the wrong nodes.
LAUNCHER_PREFIXES = (
    *("SLURM_", "PMI", "PMIX_", "HYDRA_", "MPIEXEC_", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    "QLOOM_SUPERVISED",  # `qloom.mpi.supervisor` sets it for the ranks below it
)
KEPT = ("SLURM_CONF",)


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

    @property
    def says_gone(self) -> bool:
        """Whether the jobs that were named have ended, or are not known any more."""
        return any(text in self.stderr.lower() for text in GONE)


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
        async with asyncio.timeout(timeout_s):
            stdout, stderr = await process.communicate()
    except asyncio.CancelledError:
        await _kill(process)  # it is gone before the loop is
        raise
    except TimeoutError:
        await _kill(process)
        return _no_answer(words[0], timeout_s)
    return Answer(process.returncode or 0, stdout.decode(errors="replace"), stderr.decode(errors="replace"))


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a program with all that it has started: a site's wrapper script may have a child that holds its pipes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.communicate()


def _no_answer(program: str, timeout_s: float) -> Answer:
    return Answer(NO_ANSWER, "", f"{program}: socket timed out: no answer in {timeout_s:g} s")


# The environment


def clean_environment() -> dict[str, str]:
    """The variables of this process without those by which a launcher finds out where it is.

    The directory of our Python is the last in PATH: tasks find programs that were installed beside it, and a Slurm
    that comes earlier in PATH than /usr/bin is the one that is called, also under /usr/bin/python3.
    """
    inherited = {
        name: value for name, value in os.environ.items() if name in KEPT or not name.startswith(LAUNCHER_PREFIXES)
    }
    path = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    return {**inherited, "PATH": os.pathsep.join(path)}


def client_environment() -> dict[str, str]:
    """The same for a client of Slurm, which prints times as seconds of the epoch."""
    return {**clean_environment(), "SLURM_TIME_FORMAT": "%s"}
