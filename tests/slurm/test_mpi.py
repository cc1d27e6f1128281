"""MPI on real Slurm: tasks over ranks, elastic programs, and the quantum component of a het job."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys

import pytest

import qloom
from qloom import command
from qloom.errors import TaskFailed
from qloom.model import call
from qloom.mpi.launch import Launch, run_ranks, srun
from tests.journals import as_lines
from tests.mpi.conftest import HERE
from tests.mpi.ranks import EXAMPLES, QLOOM, write
from tests.slurm import programs
from tests.slurm.driver import ended, result, submitted
from tests.slurm.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HERE, reason="MPI IS NOT TESTED ON SLURM: pip install 'qloom[mpi]'"),
]
SET_UP = {"path": sys.path, "programs": {}}
WAIT_S = 180


@pytest.fixture
def wide_slurm(wide_slurm_env, monkeypatch):
    """The wide testbed, empty after a test, too."""
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")
    yield wide_slurm_env
    until(lambda: wide_slurm_env.run("squeue", "-h") == "")


def where_am_i():
    import os

    from mpi4py import MPI

    return MPI.COMM_WORLD.gather(os.environ["SLURMD_NODENAME"])


def run(task, launch, directory):
    return asyncio.run(asyncio.wait_for(run_ranks(task, launch, SET_UP, {}, within=directory), WAIT_S)).result


def steps(slurm, job):
    return slurm.run("squeue", "--steps", "--noheader", f"--jobs={job}", "--format=%i %j").split("\n")


def test_a_task_runs_over_the_nodes_of_its_job(two_nodes, tmp_path):
    job, nodes = two_nodes
    where = run(call(where_am_i).needs(ranks=4, nodes=2), srun(4, nodes, job), tmp_path)
    assert where == [nodes[0], nodes[0], nodes[1], nodes[1]]


def test_ranks_that_srun_starts_without_mpi_are_refused(two_nodes, tmp_path):
    job, nodes = two_nodes
    launch = srun(2, nodes, job)
    without = Launch(
        tuple("--mpi=none" if word == "--mpi=pmi2" else word for word in launch.words), launch.environment
    )
    with pytest.raises(TaskFailed, match="2 ranks were started and MPI sees 1"):
        run(call(where_am_i).needs(ranks=2, nodes=2), without, tmp_path)


def test_a_cancelled_task_leaves_no_step(slurm, two_nodes, tmp_path):
    job, nodes = two_nodes
    file = write(
        tmp_path / "wait.py",
        f"import pathlib, time; pathlib.Path({str(tmp_path)!r}, 'here').touch(); time.sleep(600)",
    )

    async def main():
        waiting = command(sys.executable, "-m", "qloom.mpi", str(file)).needs(ranks=2, nodes=2)
        running = asyncio.ensure_future(run_ranks(waiting, srun(2, nodes, job), SET_UP, {}))
        while not (tmp_path / "here").exists():
            assert not running.done()
            await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(asyncio.wait_for(main(), WAIT_S))
    until(lambda: not any(line.startswith(f"{job}.") and "extern" not in line for line in steps(slurm, job)))


@pytest.mark.parametrize(
    ("strategy", "options"),
    [("workflow", {}), ("malleable", {}), ("malleable", {"min_nodes": 2}), ("coschedule", {})],
)
def test_a_program_with_mpi_phases_runs_on_slurm(slurm, strategy, options):
    outcome = qloom.run(programs.over_ranks, world="slurm", strategy=strategy, options=options)
    assert (outcome.errors, outcome.results) == ([], [[2, 2]])


DRIVERS = [("workflow", "beside"), ("split", "beside"), ("malleable", "beside"), ("workflow", "chain")]


@pytest.mark.usefixtures("wide_slurm")
def test_drivers_that_live_in_slurm_run_mpi_phases():
    """In-job ones of strategies that hold one node throughout cannot: they say what to do instead."""
    runs = {pair: submitted(programs.source(programs.over_ranks), *pair) for pair in DRIVERS}
    refused = submitted(programs.source(programs.over_ranks), "workflow", "in-job")
    for pair, name in runs.items():
        assert result(name, ended(name)) == [2, 2], pair
    (failed,) = [event["error"] for event in as_lines(ended(refused)) if event["event"] == "job_ended"]
    assert "came as several Slurm jobs" in failed["message"]
    assert "qloom submit --driver beside" in failed["hint"]


def submit(slurm, script, directory):
    """Run a batch script to its end; what it printed."""
    job = slurm.run("sbatch", "--parsable", f"--chdir={directory}", "--output=%x.out", str(script)).strip()
    until(lambda: not slurm.run("squeue", "--noheader", "--format=%i", f"--jobs={job}"), WAIT_S)
    return (directory / f"{script.name}.out").read_text()


def test_one_world_over_a_het_job_has_its_last_rank_on_the_qpu(slurm, tmp_path):
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    out = submit(slurm, tmp_path / "oneworld.sh", tmp_path)
    assert "energies [-3, -6, -10], classical sum 49995000, QPU rank on q1" in out
    assert out.count("classical rank") == 2
    assert "classical rank 0 on c" in out


def test_the_example_of_two_worlds_runs(slurm, tmp_path):
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    out = submit(slurm, tmp_path / "ports.sh", tmp_path)
    assert "results [-3, -6, -10], classical sum 49995000" in out
    assert "released" in out
    assert out.count(" of 2 on c") == 2
    assert not list(tmp_path.glob("qpu-port*"))


HET = """\
#!/bin/bash
#SBATCH -p compute -N 2 -n 2 -t 5
#SBATCH hetjob
#SBATCH -p quantum -N 1 -n 1 --gres=qpu:8 -t 5
srun --het-group=0 --mpi=pmi2 --kill-on-bad-exit=1 {python} -m qloom.mpi server.py &
server=$!
{client}
wait $server
"""
SERVER = """
import os, subprocess, time
from pathlib import Path
from qloom.errors import JobError
from qloom.mpi import ports
from qloom.mpi.oneworld import checked_world

comm = checked_world()
try:
    with ports.accept(Path.cwd(), within_s={within_s}) as qpu:
        if comm.rank == 0:
            assert [out.result(60) for out in [qpu.submit("a"), qpu.submit("b")]] == ["A", "B"]
except JobError as error:
    print(f"without: {{error}}.", flush=True)
if comm.rank == 0:
    assert ports.release_qpu()
    until = time.monotonic() + 60
    free = lambda: subprocess.run(["sinfo", "-h", "-n", "q1", "-o", "%T"], capture_output=True, text=True).stdout
    while free().strip() != "idle":
        assert time.monotonic() < until, free()
        time.sleep(0.05)
    print("QPU idle while the classical component runs", flush=True)
comm.Barrier()
print(f"rank {{comm.rank}} goes on", flush=True)
"""
CLIENT = """
from pathlib import Path
from qloom.mpi import ports

ports.serve(str.upper, Path.cwd(), within_s=60, patience_s=60)
"""


@pytest.mark.parametrize("comes", [True, False])
def test_the_qpu_is_given_back_while_the_classical_component_goes_on(slurm, tmp_path, comes):
    client = f"srun --het-group=1 --mpi=pmi2 {sys.executable} -m qloom.mpi client.py &" if comes else ""
    script = write(tmp_path / "het.sh", HET.format(python=sys.executable, client=client))
    write(tmp_path / "server.py", SERVER.format(within_s=60 if comes else 1))
    write(tmp_path / "client.py", CLIENT)
    out = submit(slurm, script, tmp_path)
    assert "QPU idle while the classical component runs" in out, out
    assert out.count("goes on") == 2, out
    assert ("without: the quantum component did not come within 1 s." in out) == (not comes)


def qloom_mpi(*words):
    return [
        *QLOOM,
        "mpi",
        "run",
        "--world",
        "slurm",
        "--time",
        "5",
        "--slurm=--exclusive",
        *words,
    ]


def events_of(directory):
    return [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]


def sizes_of(directory):
    return [event["nodes"] for event in events_of(directory) if event["event"] == "started"]


def test_an_elastic_program_grows_by_second_allocations_from_outside(slurm, tmp_path):
    words = qloom_mpi("--nodes", "1-3", "--directory", str(tmp_path / "root"), str(EXAMPLES / "elastic.py"), "2")
    done = subprocess.run(words, capture_output=True, text=True, timeout=2 * WAIT_S, check=False)
    # two nodes are free beside the one that it holds: it goes over to those, and gives the first back
    assert "total 501500.0, classical phases on [2, 2] nodes, end on 1" in done.stdout, done.stderr
    assert sizes_of(tmp_path / "root") == [1, 2, 1, 2, 1]


def test_an_elastic_program_grows_from_inside_its_own_job(slurm, tmp_path):
    words = qloom_mpi("--nodes", "1-2", "--directory", str(tmp_path / "root"), str(EXAMPLES / "elastic.py"), "1")
    lines = ["#!/bin/bash", "#SBATCH -N1 -t5 --exclusive", "exec " + " ".join(f"'{word}'" for word in words)]
    script = write(tmp_path / "job.sh", "\n".join(lines) + "\n")
    out = submit(slurm, script, tmp_path)
    assert "total 500500.0, classical phases on [2] nodes, end on 1" in out, out
    assert sizes_of(tmp_path / "root") == [1, 2, 1]


def test_a_full_queue_is_waited_for_no_longer_than_allowed(slurm, tmp_path):
    slurm.run("sbatch", "-N2", "--exclusive", "-t5", "--job-name=others", "--output=/dev/null", "--wrap", "sleep 300")
    until(lambda: slurm.run("squeue", "--noheader", "--name=others", "--format=%T").strip() == "RUNNING")
    words = qloom_mpi("--nodes", "1-3", "--patience-s", "0.5", "--directory", str(tmp_path / "root"))
    done = subprocess.run(
        [*words, str(EXAMPLES / "elastic.py"), "2"], capture_output=True, text=True, timeout=2 * WAIT_S, check=False
    )
    slurm.run("scancel", "--name=others")
    assert "classical phases on [1, 1] nodes, end on 1" in done.stdout, done.stderr
    assert sizes_of(tmp_path / "root") == [1]


def test_a_root_that_is_killed_leaves_nothing_that_the_next_does_not_reap(slurm, tmp_path):
    file = write(
        tmp_path / "wait.py",
        f"import pathlib, time; pathlib.Path({str(tmp_path)!r}, 'here').touch(); time.sleep(600)",
    )
    root = subprocess.Popen(qloom_mpi("--directory", str(tmp_path / "root"), str(file)))
    try:
        until(lambda: (tmp_path / "here").exists())
    finally:
        root.kill()
        root.wait()
    done = write(tmp_path / "done.py", "print('done')")
    words = qloom_mpi("--directory", str(tmp_path / "root"), str(done))
    assert subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False).stdout == "done\n"
