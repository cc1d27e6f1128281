"""Tasks of the local world that raise, exit, die or are cancelled, and QPUs that are not there."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time

import pytest

import qloom
from qloom import call, command, delay
from qloom.errors import InputError, QuantumFailed, TaskFailed
from qloom.site import Qpu, Site
from tests.unit.light import run, square, worker_pid
from tests.unit.processes import DEADLINE_S, failure, is_alive, wait_until


def raises():
    raise ValueError("no luck")


def test_an_exception_is_told_with_its_task_and_where_it_was():
    error = failure(call(raises), square(2))
    assert isinstance(error, TaskFailed)
    assert error.message.startswith("task raises on n1 raised ValueError: no luck\n")
    assert 'raise ValueError("no luck")' in error.message


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("even this fails")


def raises_unprintable():
    raise Unprintable


def test_an_exception_that_cannot_be_printed_is_still_told():
    assert "raises_unprintable on n1 raised Unprintable" in failure(call(raises_unprintable)).message


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (call(sys.exit, 3), "task exit on n1 exited with 3"),
        (call(sys.exit), "task exit on n1 exited with None"),
        (call(os._exit, 7), "task _exit on n1 exited with 7"),
        (call(os._exit, 0), "task _exit on n1 exited with 0"),
        (call(os.abort), "task abort on n1 was killed by SIGABRT"),
        (call(os.kill, 0, signal.SIGKILL), "task kill on n1 was killed by SIGKILL"),
        (command("sh", "-c", "echo to the error >&2; exit 4"), "task sh on n1 exited with 4: to the error"),
        (command("sh", "-c", "echo only this; exit 5"), "task sh on n1 exited with 5: only this"),
        (command("sh", "-c", "echo one; echo two; exit 6"), "task sh on n1 exited with 6\none\ntwo"),
        (command("sh", "-c", "kill -9 $$", name="suicide"), "task suicide on n1 exited with -9"),
        (command("/no/such/program"), "cannot run /no/such/program: No such file or directory"),
        (command("true", cwd="/no/such/place"), "No such file or directory"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_how_a_task_ended_is_told(ends, said):
    assert said in failure(ends).message


def test_what_a_dead_worker_printed_last_is_told(tmp_path):
    program = tmp_path / "prog.py"
    program.write_text(
        textwrap.dedent("""
        import os, sys, qloom

        @qloom.task
        def dies():
            print("about to go", flush=True)
            os._exit(9)

        async def program(job):
            await job.classical(dies())
        """)
    )
    (error,) = qloom.run(str(program), world="local").errors
    assert "task dies on n1 exited with 9" in error.message
    assert "about to go" in error.message


def test_a_dead_worker_is_replaced_and_the_job_may_go_on():
    async def program(job):
        (before,) = await job.classical(worker_pid())
        with pytest.raises(TaskFailed):
            await job.classical(call(os._exit, 1))
        (after,) = await job.classical(worker_pid())
        return before, after, await job.classical(*(square(x) for x in range(6)))

    before, after, squares = run(program, site=Site(nodes=1)).result
    assert before != after
    assert squares == [0, 1, 4, 9, 16, 25]


def test_workers_stay_warm():
    async def program(job):
        return [(await job.classical(worker_pid()))[0] for _ in range(3)]

    assert len(set(run(program, site=Site(nodes=1), strategy="workflow").result)) == 1


def test_one_failure_ends_its_phase_and_kills_the_rest(tmp_path):
    mark = tmp_path / "pid"
    slow = command("sh", "-c", f"echo $$ > {mark}; exec sleep 1000")

    def fails_when_the_other_runs():
        deadline = time.monotonic() + DEADLINE_S
        while not (mark.exists() and mark.read_text().strip()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        raise ValueError("now")

    assert "now" in failure(slow, call(fails_when_the_other_runs)).message
    pid = int(mark.read_text())
    wait_until(lambda: not is_alive(pid), "the other task still runs")


def test_one_job_that_fails_does_not_stop_the_other(tmp_path):
    async def program(job):
        await job.classical(square(1))
        return await job.classical(call(raises) if job.name == "j1" else square(3))

    outcome = run(program, jobs=2, strategy="workflow")
    assert outcome.results == [None, [9]]
    assert [error.job for error in outcome.errors] == ["j1"]


def test_a_cancelled_task_is_killed_with_all_that_it_started(tmp_path):
    mark = tmp_path / "pids"

    async def program(job):
        script = f"sleep 1000 & echo $$ $! > {mark}.new; mv {mark}.new {mark}; wait"
        running = job.classical(command("sh", "-c", script))
        while not mark.exists():
            await job.quantum(delay(0.02))
        running.cancel()
        return await job.classical(square(2))

    assert run(program, site=Site(nodes=1)).result == [4]
    for pid in map(int, mark.read_text().split()):
        wait_until(lambda pid=pid: not is_alive(pid), f"process {pid} outlived its task")


def test_a_qpu_whose_process_dies_fails_its_task_and_is_back_for_the_next():
    deadly = qloom.Payload("command", command("sh", "-c", "kill -9 $PPID"), name="deadly")

    async def program(job):
        with pytest.raises(QuantumFailed, match="QPU qpu, task deadly was killed by SIGKILL"):
            await job.quantum(deadly)
        return (await job.quantum({("a", "a"): -1.0}, shots=3)).energy

    assert run(program).result == -1.0


def test_a_command_that_fails_on_a_qpu_is_told():
    failing = qloom.Payload("command", command("sh", "-c", "echo $QLOOM_QPU is cold >&2; exit 3"), name="probe")

    async def program(job):
        await job.quantum(failing)

    (error,) = run(program).errors
    assert "task probe exited with 3" in error.message
    assert "qpu is cold" in error.message


def test_a_qpu_that_is_not_there_is_wrong_input():
    async def program(job):
        await job.quantum({("a", "a"): -1.0}, device="nowhere")

    (error,) = run(program).errors
    assert isinstance(error, InputError)
    assert "no QPU is called 'nowhere'" in error.message


def test_no_return_is_planned_for_an_offline_qpu():
    async def program(job):
        await job.quantum(delay(0.1))

    (error,) = run(program, site=Site(qpus=(Qpu(offline=True),))).errors
    assert isinstance(error, QuantumFailed)
    assert "offline" in error.message


def test_a_site_without_a_qpu_says_so():
    async def program(job):
        await job.quantum(delay(0.1))

    (error,) = run(program, site=Site(qpus=())).errors
    assert "this site has no QPU" in error.message
