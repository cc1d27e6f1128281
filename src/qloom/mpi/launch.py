"""Starts the ranks of a task: by mpiexec on this machine, by srun in a Slurm job. The result is that of rank 0.

A call goes to the ranks, and its result comes back, as files in a directory that all nodes of the task see:
mpiexec gives up on ranks that read their standard input too slowly.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qloom.errors import InputError, TaskFailed
from qloom.journal.results import write_atomically
from qloom.logs import captured, run_logged
from qloom.model import CommandResult, Task
from qloom.mpi import supervisor
from qloom.private import read_private
from qloom.slurm.commands import clean_environment
from qloom.world import Ran

CALL, RESULT = "call.pickle", "result.pickle"
SAID = "qloom: "  # what begins the line in which a rank says why it ended the others
_LOOPBACK = {"UCX_NET_DEVICES": "lo", "FI_TCP_IFACE": "lo"}


@dataclass(frozen=True)
class Launch:
    """How ranks are started: the words that go before the program's own, and its environment."""

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = ""  # what runs the ranks of a function: ours, unless given


def require_mpi(task: Task, launcher: str = "mpiexec") -> None:
    """Raise `InputError` if the ranks of a task could not be started here."""
    if task.ranks:
        require_programs(f"task {task.name}", launcher, mpi4py=task.command is None)


def require_programs(who: str, launcher: str, *, mpi4py: bool) -> None:
    """Raise `InputError` if what MPI needs is not installed."""
    missing = [] if _found(launcher) else [launcher]
    if mpi4py and importlib.util.find_spec("mpi4py") is None:
        missing.append("mpi4py")
    if missing:
        hint = "there is no Slurm on this machine" if "srun" in missing else "pip install 'qloom[mpi]'"
        raise InputError(f"{who} uses MPI and {' and '.join(missing)} cannot be found", hint=hint)


def mpiexec(ranks: int) -> Launch:
    """Ranks as processes of this machine, which need no other network than its own."""
    environment = {**_LOOPBACK, **clean_environment(), "PATH": _beside_python(), "QLOOM_RANKS": str(ranks)}
    return Launch((_found("mpiexec") or "mpiexec", "-n", str(ranks), *_supervised()), environment)


def srun(ranks: int, nodes: Sequence[str], job_id: str, *, het_group: int | None = None, python: str = "") -> Launch:
    """Ranks as a step of their own over `nodes`, all of which belong to the Slurm job `job_id`."""
    words = ["srun", f"--jobid={job_id}"]
    if het_group is not None:
        words.append(f"--het-group={het_group}")
    words += [f"--nodes={len(nodes)}", f"--ntasks={ranks}", f"--nodelist={','.join(nodes)}"]
    words += ["--mpi=pmi2", "--overlap", "--kill-on-bad-exit=1", "--unbuffered", *_supervised(python)]
    # MPICH names its shared memory by this. Its usual value, job.step, may be that of another Slurm on the host, too.
    unique = {supervisor.WORLD: f"qloom-{uuid.uuid4().hex[:12]}"}
    return Launch(tuple(words), {**clean_environment(), **unique, "QLOOM_RANKS": str(ranks)}, python)


def _supervised(python: str = "") -> tuple[str, ...]:
    """Another Python has its own qloom, wherever that is."""
    return (python, "-P", "-m", supervisor.__name__) if python else (sys.executable, "-I", "-S", supervisor.__file__)


async def run_ranks(
    task: Task,
    launch: Launch,
    set_up: Mapping[str, Any],
    environment: Mapping[str, str],
    log: Path | None = None,
    within: Path | None = None,
) -> Ran:
    """Run a task over its ranks; if the caller is cancelled they are ended first.

    What the ranks print goes to `log` at once. The files of the call go `within` a directory that the first node
    sees, too.
    """
    launch = replace(launch, environment={**launch.environment, **environment})
    if task.command is not None:
        return Ran(await _run_command(task, launch, log))
    with tempfile.TemporaryDirectory(prefix="mpi-", dir=within) as name:
        directory = Path(name)
        message = (dict(set_up), _function(task.function), _dumps((task.args, dict(task.kwargs))))
        write_atomically(directory / CALL, pickle.dumps(message))
        program = (launch.python or sys.executable, "-m", "mpi4py", "-m", "qloom.mpi.rank", name)
        exit_code, stdout, stderr = await run_logged((*launch.words, *program), launch.environment, None, log)
        if exit_code != 0 or not (directory / RESULT).exists():
            raise TaskFailed(f"task {task.name} over {task.ranks} ranks: {_why(exit_code, stdout, stderr)}")
        seconds, result = pickle.loads(read_private(directory / RESULT))  # noqa: S301  by the user's own ranks
        return Ran(result, seconds)


async def _run_command(task: Task, launch: Launch, log: Path | None) -> CommandResult:
    assert task.command is not None  # noqa: S101  the caller has looked
    words = (*launch.words, *task.command)
    exit_code, stdout, stderr = await run_logged(words, {**launch.environment, **task.env}, task.cwd, log)
    if exit_code != 0:
        raise TaskFailed(f"task {task.name} over {task.ranks} ranks: {_why(exit_code, stdout, stderr)}")
    return CommandResult(exit_code, stdout, stderr, captured(task))


def _why(exit_code: int, stdout: str, stderr: str) -> str:
    """Why ranks ended, in the words of the one that ended the others, if it left any."""
    lines = stderr.splitlines()
    said = [line.removeprefix(SAID) for line in lines if line.startswith(SAID)]
    how = said[0] if said else f"exit code {exit_code}" if exit_code >= 0 else f"ended by signal {-exit_code}"
    last = "\n".join(line for line in lines if not line.startswith(SAID)).strip() or stdout.strip()
    return how + (f"\n{last}" if last else "")


def _function(function: Any) -> bytes:
    import cloudpickle

    return bytes(cloudpickle.dumps(function))


def _dumps(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        return _function(value)


def _found(launcher: str) -> str | None:
    """Where a launcher is: `srun` is that of the Slurm in PATH, `mpiexec` that of our Python, if it has one."""
    return shutil.which(launcher) if launcher == "srun" else shutil.which(launcher, path=_beside_python())


def _beside_python() -> str:
    """PATH with the programs that belong to our Python first: MPICH's ranks hang under another mpiexec."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
