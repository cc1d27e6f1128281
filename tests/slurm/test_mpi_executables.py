"""MPI executables on real Slurm: they start whatever their memory holds, and leave nothing when they crash."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from qloom import command
from qloom.errors import TaskFailed
from qloom.mpi.launch import run_ranks, srun
from tests.mpi.conftest import HERE
from tests.mpi.executables import compiled
from tests.mpi.ranks import QLOOM, processes_with, write
from tests.slurm.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HERE, reason="MPI IS NOT TESTED ON SLURM: pip install 'qloom[mpi]'"),
]
WAIT_S = 60
JOB_FILE = """
name = "mpi"
files = ["solver"]

[[phase]]
kind = "classical"
[[phase.task]]
command = ["./solver"]
nodes = 2
ranks = 4
"""


@pytest.fixture
def shared_memory():
    """MPICH's shared memory is as it was before the test; that of others, who run beside it, goes by itself."""
    before = _shared_memory()
    yield
    until(lambda: _shared_memory() <= before, 30)


def _shared_memory():
    return set(Path("/dev/shm").glob("mpich_shm_*"))


def run(two_nodes, *words, cwd=None):
    job, nodes = two_nodes
    task = command(*map(str, words), name="solve", cwd=str(cwd) if cwd else None).needs(ranks=4, nodes=2)
    return asyncio.run(asyncio.wait_for(run_ranks(task, srun(4, nodes, job), {}, {}), WAIT_S))


@pytest.mark.usefixtures("slurm", "shared_memory")
def test_the_executable_of_a_job_file_starts_whatever_its_memory_holds(tmp_path):
    shutil.copy(compiled("solver", "-DFULL"), tmp_path)
    file = write(tmp_path / "job.toml", JOB_FILE)
    words = [*QLOOM, "run", str(file), "--world", "slurm"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("shared_memory")
def test_an_executable_starts_from_a_path_of_any_length(two_nodes, tmp_path):
    for length in (80, 110, 140, 177, 210, 250):
        directory = tmp_path / ("d" * max(1, length - len(str(tmp_path)) - len("//solver")))
        directory.mkdir()
        shutil.copy(compiled("solver", "-DFULL"), directory)
        assert run(two_nodes, "./solver", cwd=directory).result.stdout == "sum 6 of 4 ranks\n", length


@pytest.mark.usefixtures("shared_memory")
@pytest.mark.parametrize("how", ["SIGSEGV", "SIGABRT", "SIGKILL", "MPI_Abort"])
def test_a_rank_that_crashes_ends_the_task_and_leaves_no_shared_memory(two_nodes, how):
    with pytest.raises(TaskFailed) as failed:
        run(two_nodes, compiled("crash"), how)
    reason, *printed = failed.value.message.splitlines()
    if how != "MPI_Abort":
        assert reason == f"task solve over 4 ranks: rank 3 was ended by {how}"
    else:
        assert "application called MPI_Abort(MPI_COMM_WORLD, 3)" in "\n".join(printed)


@pytest.mark.usefixtures("shared_memory")
@pytest.mark.parametrize("signal", [(), ("--signal=KILL",)])
def test_a_cancelled_job_leaves_no_shared_memory(slurm, two_nodes, signal):
    job, nodes = two_nodes

    async def main():
        task = command(str(compiled("crash")), "never").needs(ranks=4, nodes=2)
        running = asyncio.ensure_future(run_ranks(task, srun(4, nodes, job), {}, {}))
        while ranks_with_nameless_memory() < 4:
            assert not running.done()
            await asyncio.sleep(0.05)
        slurm.run("scancel", *signal, job)
        with pytest.raises(TaskFailed):
            await running

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


def ranks_with_nameless_memory():
    maps = [Path(f"/proc/{process}/maps").read_text() for process in processes_with(f"{compiled('crash')} never")]
    return sum(re.search(r"mpich_shm_\w+ \(deleted\)", text) is not None for text in maps)


def test_ranks_do_not_wait_for_ever_for_one_that_never_starts(two_nodes, monkeypatch):
    monkeypatch.setenv("QLOOM_MPI_START_S", "1")
    script = f'[ "$SLURM_PROCID" = 0 ] && exec sleep 600; exec {compiled("solver")}'
    with pytest.raises(TaskFailed, match="the other ranks did not start MPI within 1 s"):
        run(two_nodes, "sh", "-c", script)
