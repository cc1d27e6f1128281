"""Classical tasks over MPI ranks in the local world."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from pathlib import Path

import pytest

import qloom
from qloom import command, task
from qloom.errors import InputError, TaskFailed
from qloom.model import call
from qloom.mpi.launch import Launch, mpiexec, run_ranks, srun
from tests.mpi import ranks
from tests.mpi.executables import compiled

SET_UP = {"path": sys.path, "programs": {}}


@task(ranks=3, expected_s=1.0, stand_in=lambda n: (3, n * (n - 1) // 2))
def total(n):
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    part = world.reduce(sum(range(world.rank, n, world.size)))
    return (world.size, part) if world.rank == 0 else "not the result"


@task(ranks=2)
def fails_on_one_rank():
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 1:
        raise ValueError("no such file")
    MPI.COMM_WORLD.barrier()


async def add_up(job):
    return (await job.classical(total(1000)))[0]


def outcome_of(*tasks, **more):
    async def program(job):
        return await job.classical(*tasks)

    return qloom.run(program, in_memory=True, **{"world": "local", **more})


@pytest.mark.parametrize("world", ["local", "virtual"])
def test_the_result_is_that_of_rank_0_over_all_ranks(world):
    assert qloom.run(add_up, world=world, in_memory=True).result == (3, 499500)


@pytest.mark.slow
def test_strategies_run_a_task_over_ranks_and_nodes():
    names = ["coschedule", "malleable", "workflow"]
    outcome = outcome_of(total(10).needs(nodes=2), strategy=",".join(names), jobs=len(names))
    assert outcome.results == [[(3, 45)]] * len(names)


def test_a_command_runs_once_per_rank(tmp_path):
    script = ranks.write(
        tmp_path / "say.py", "from mpi4py import MPI; print(f'size {MPI.COMM_WORLD.size}.', flush=True)"
    )
    (result,) = outcome_of(command(sys.executable, "-m", "qloom.mpi", str(script)).needs(ranks=2, nodes=2)).results[0]
    assert result.stdout.count("size 2.") == 2


def test_one_rank_that_raises_ends_all_and_says_why():
    (error,) = outcome_of(fails_on_one_rank()).errors
    assert isinstance(error, TaskFailed)
    first = error.message.splitlines()[0]
    assert first == "task fails_on_one_rank over 2 ranks: rank 1 raised ValueError: no such file"
    assert 'raise ValueError("no such file")' in error.message  # and the place


def test_a_command_that_fails_on_one_rank_fails(tmp_path):
    script = ranks.write(tmp_path / "bad.py", "import sys; from mpi4py import MPI; sys.exit(3 * MPI.COMM_WORLD.rank)")
    (error,) = outcome_of(command(sys.executable, "-m", "qloom.mpi", str(script), name="bad").needs(ranks=2)).errors
    assert error.message.startswith("task bad over 2 ranks: exit code 3")


def test_ranks_that_do_not_see_each_other_are_refused():
    """As under srun without --mpi: the ranks start, each alone in its world, and all would end well."""
    alone = Launch(("sh", "-c", '"$@" & "$@"; wait', "sh"), {**os.environ, "QLOOM_RANKS": "2"})
    with pytest.raises(TaskFailed, match="2 ranks were started and MPI sees 1"):
        asyncio.run(run_ranks(call(len, ()).needs(ranks=2), alone, SET_UP, {}))


def test_a_cancelled_task_takes_its_ranks_along(tmp_path):
    script = ranks.write(
        tmp_path / "wait.py",
        f"import pathlib, time; pathlib.Path({str(tmp_path)!r}, 'here').touch(); time.sleep(600)",
    )

    async def main():
        task = command(sys.executable, "-m", "qloom.mpi", str(script)).needs(ranks=2)
        running = asyncio.ensure_future(run_ranks(task, mpiexec(2), SET_UP, {}))
        while not (tmp_path / "here").exists():
            assert not running.done()
            await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    shared_memory = set(Path("/dev/shm").glob("mpich_shm_*"))
    asyncio.run(asyncio.wait_for(main(), ranks.DEADLINE_S))
    ranks.until(lambda: not ranks.processes_with(str(script)))
    ranks.until(lambda: set(Path("/dev/shm").glob("mpich_shm_*")) <= shared_memory)  # that of others goes by itself


@pytest.mark.parametrize("how", ["SIGSEGV", "SIGKILL", "MPI_Abort"])
def test_a_rank_that_crashes_leaves_no_shared_memory(how):
    shared_memory = set(Path("/dev/shm").glob("mpich_shm_*"))
    with pytest.raises(TaskFailed):
        asyncio.run(run_ranks(command(str(compiled("crash")), how).needs(ranks=2), mpiexec(2), SET_UP, {}))
    ranks.until(lambda: set(Path("/dev/shm").glob("mpich_shm_*")) <= shared_memory, 30)


def test_ranks_end_with_a_driver_that_is_killed(tmp_path):
    script = ranks.write(
        tmp_path / "wait.py",
        f"import pathlib, time; pathlib.Path({str(tmp_path)!r}, 'here').touch(); time.sleep(600)",
    )
    driver = ranks.write(
        tmp_path / "driver.py",
        f"""
        import asyncio, sys
        from qloom import command
        from qloom.mpi.launch import mpiexec, run_ranks
        asyncio.run(run_ranks(command(sys.executable, {str(script)!r}).needs(ranks=2), mpiexec(2), {{}}, {{}}))
        """,
    )
    process = ranks.subprocess.Popen([sys.executable, str(driver)])
    try:
        ranks.until(lambda: (tmp_path / "here").exists())
    finally:
        process.kill()
        process.wait()
    ranks.until(lambda: not ranks.processes_with(str(script)))


def test_without_the_extra_it_is_one_clear_line(monkeypatch):
    known = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: (name != "mpi4py" and known(name, *more)) or None
    )
    (error,) = outcome_of(total(10)).errors
    assert isinstance(error, InputError)
    assert error.exit_code == 2
    assert error.message.startswith("task total uses MPI and mpi4py cannot be found (test_tasks.py, line ")
    assert str(error).endswith("(pip install 'qloom[mpi]')")


def test_fewer_ranks_than_nodes_are_refused():
    with pytest.raises(InputError, match="2 MPI ranks are too few for 3 nodes"):
        total(10).needs(nodes=3, ranks=2)


def test_a_job_file_asks_for_ranks(tmp_path):
    ranks.write(tmp_path / "say.py", "from mpi4py import MPI; open('size', 'w').write(str(MPI.COMM_WORLD.size))")
    file = ranks.write(
        tmp_path / "job.toml",
        f"""
        name = "ranks"
        [[phase]]
        kind = "classical"
        [[phase.task]]
        command = ["{sys.executable}", "-m", "qloom.mpi", "{{source}}/say.py"]
        ranks = 3
        outputs = ["size"]
        """,
    )
    outcome = qloom.run(str(file), world="local")
    assert (outcome.directory / "output" / "j1" / "size").read_text() == "3"


def test_a_step_of_slurm_gets_the_nodes_of_one_job_and_no_stale_place(monkeypatch):
    for name in ("SLURM_NNODES", "SLURM_NTASKS", "SLURM_JOB_NODELIST", "PMI_RANK"):
        monkeypatch.setenv(name, "stale")
    monkeypatch.setenv("SLURM_CONF", "/etc/here")
    launch = srun(4, ["c1", "c2"], "17", het_group=0)
    assert {"--jobid=17", "--het-group=0", "--nodes=2", "--ntasks=4", "--nodelist=c1,c2", "--mpi=pmi2"} <= {
        *launch.words
    }
    assert "stale" not in launch.environment.values()
    assert launch.environment["SLURM_CONF"] == "/etc/here"
    assert launch.environment["PATH"].startswith(str(Path(sys.executable).parent))
