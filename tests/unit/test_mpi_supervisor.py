"""The supervisor of a rank, between a launcher that the test plays and a rank that says what the test wants."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap

import pytest

from qloom.mpi import supervisor
from qloom.mpi.launch import srun

RANK = """
import os, socket, sys
launcher = socket.socket(fileno=int(os.environ["PMI_FD"]))
def ask(line):
    launcher.sendall(line + b"\\n")
    return launcher.recv(65536)
"""


@pytest.fixture
def launched():
    """Starts a rank under a supervisor; returns the process and the launcher's end of PMI."""
    started = []

    def start(program, **environment):
        ours, its = socket.socketpair()
        with its:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    supervisor.__file__,
                    sys.executable,
                    "-c",
                    RANK + textwrap.dedent(program),
                ],
                env={**os.environ, "PMI_FD": str(its.fileno()), "PMI_RANK": "1", **environment},
                pass_fds=[its.fileno()],
                stderr=subprocess.PIPE,
                text=True,
            )
        ours.settimeout(30)
        started.append((process, ours))
        return process, ours

    yield start
    for process, ours in started:
        ours.close()
        process.kill()
        process.communicate()


def ended(process):
    _, stderr = process.communicate(timeout=30)
    return process.returncode, stderr


@pytest.mark.parametrize(("announced", "seen"), [(1024, 896), (512, 512)])
def test_values_fit_into_a_line_that_slurm_reads(launched, announced, seen):
    expected = f"cmd=maxes rc=0 keylen_max=64 vallen_max={seen}\n".encode()
    process, launcher = launched(f"sys.exit(ask(b'cmd=get_maxes') != {expected!r})")
    assert launcher.recv(100) == b"cmd=get_maxes\n"
    launcher.sendall(f"cmd=maxes rc=0 keylen_max=64 vallen_max={announced}\n".encode())
    assert ended(process) == (0, "")
    longest = f"cmd=put kvsname={'w' * 35} key={'k' * 64} value={'v' * 896}\n"
    assert len(longest) == supervisor.SLURM_LINE


def test_a_line_that_slurm_would_cut_ends_the_rank_instead(launched):
    process, _ = launched("ask(b'cmd=put value=' + 2000 * b'v')", SLURM_STEP_ID="0")
    code, stderr = ended(process)
    assert (code, "publishes 2015 characters at once, and Slurm reads 1024" in stderr) == (-9, True)


def test_a_rank_that_waits_for_the_others_for_too_long_is_ended(launched):
    process, launcher = launched("ask(b'cmd=barrier_in')", QLOOM_MPI_START_S="0.2")
    assert launcher.recv(100) == b"cmd=barrier_in\n"
    assert ended(process) == (-9, "qloom: rank 1: the other ranks did not start MPI within 0.2 s\n")


def test_a_rank_may_compute_for_as_long_as_it_likes_once_all_have_started(launched):
    process, launcher = launched(
        "ask(b'cmd=barrier_in'); sys.exit(ask(b'cmd=barrier_in') != b'over')", QLOOM_MPI_START_S="0.2"
    )
    assert launcher.recv(100) == b"cmd=barrier_in\n"
    launcher.sendall(b"cmd=barrier_out rc=0\n")
    assert launcher.recv(100) == b"cmd=barrier_in\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    launcher.sendall(b"over")
    assert ended(process) == (0, "")


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("sys.exit(7)", 7, ""),
        ("os.abort()", -6, "qloom: rank 1 was ended by SIGABRT\n"),
        ("os.kill(os.getpid(), 9)", -9, "qloom: rank 1 was ended by SIGKILL\n"),
    ],
)
def test_it_ends_as_its_rank_does(launched, program, code, said):
    assert ended(launched(program)[0]) == (code, said)


def test_an_abort_ends_the_rank_with_its_code_and_does_not_reach_slurm(launched):
    process, launcher = launched("ask(b'cmd=abort exitcode=3')", SLURM_STEP_ID="0")
    assert ended(process)[0] == 3
    assert launcher.recv(100) == b""


def test_without_pmi_the_program_is_simply_run():
    words = [sys.executable, "-I", "-S", supervisor.__file__, "no-such-program"]
    environment = {name: value for name, value in os.environ.items() if name != "PMI_FD"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (127, "qloom: cannot run no-such-program: No such file or directory\n")


def test_another_python_runs_the_supervisor_of_its_own_installation(tmp_path):
    """Whose files are in other places than ours."""
    launch = srun(2, ["n1"], "7", python=sys.executable)
    words = launch.words[launch.words.index(sys.executable) :]
    assert supervisor.__file__ not in words
    environment = {name: value for name, value in os.environ.items() if name != "PMI_FD"}
    done = subprocess.run(
        [*words, "echo", "ran"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


def test_a_rank_that_takes_long_to_die_is_killed_once_and_waited_for(monkeypatch):
    ours, its = socket.socketpair()
    looks, kills, waits_s = iter([(0, 0)] * 3 + [(1, 9)]), [], []
    monkeypatch.setattr(supervisor.os, "waitpid", lambda *_: next(looks))
    monkeypatch.setattr(supervisor.os, "kill", lambda *words: kills.append(words))
    monkeypatch.setattr(supervisor.select, "select", lambda *words: waits_s.append(words[-1]) or ([], [], []))
    with ours, its:
        supervised = supervisor.RankSupervisor({"PMI_FD": str(its.detach())})
        supervised._end("the test says so")
        assert supervised._watch(1, ours, ours) == 9
        supervised._launcher.close()
    assert (len(kills), waits_s) == (1, [None] * 3)


def test_a_node_without_shared_memory_has_none_to_remove(monkeypatch, tmp_path):
    monkeypatch.setattr(supervisor, "SHARED", str(tmp_path / "missing"))
    memory = supervisor.SharedMemory()
    memory.name_world("world")
    memory.remove()
