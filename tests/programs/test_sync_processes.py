"""Several synchronous jobs at once: each has a process, in lockstep with the loop in virtual time."""

from __future__ import annotations

import _thread
import asyncio
import os
import signal
import threading
import time

import pytest

import qloom
from qloom import call, delay, task
from qloom.errors import InputError, JobError, TaskFailed

SEVERAL = {"world": "virtual", "in_memory": True, "jobs": 3}


@task(expected_s=2.0)
def square(x):
    return x * x


@task(expected_s=1.0)
def fail(x):
    raise ValueError(x)


def loop(job, size=3):
    squares = job.classical(*(square(n + job.seed) for n in range(size)))
    later = job.start_quantum(delay(3.0, "later"))
    with job.quantum_block():
        answers = [job.quantum(delay(1.0, n)) for n in range(2)]
    job.speculate(square(100))
    shared = job.share([1, 2])
    total, hundred = job.classical(call(sum, shared).needs(expected_s=1.0), square(100))
    return squares, answers, later.result(), later.done(), shared.value, total, hundred, job.name


async def awaited(job, size=3):
    squares = await job.classical(*(square(n + job.seed) for n in range(size)))
    later = job.quantum(delay(3.0, "later"))
    async with job.quantum_block():
        answers = [await job.quantum(delay(1.0, n)) for n in range(2)]
    job.speculate(square(100))
    shared = job.share([1, 2])
    total, hundred = await job.classical(call(sum, shared).needs(expected_s=1.0), square(100))
    return squares, answers, await later, later.done(), shared.value, total, hundred, job.name


def lines(outcome):
    return [event.as_dict() for event in outcome.events[1:]]


@pytest.mark.parametrize("strategy", ["offload", "malleable", "weave", "split+share"])
def test_jobs_in_processes_do_what_awaited_ones_do(strategy):
    in_processes = [qloom.run(loop, strategy=strategy, seed=5, **SEVERAL) for _ in range(2)]
    reference = qloom.run(awaited, strategy=strategy, seed=5, **SEVERAL)
    assert in_processes[0].results == in_processes[1].results == reference.results
    assert lines(in_processes[0]) == lines(in_processes[1]) == lines(reference)


def test_each_job_has_a_process_and_random_numbers_of_its_own():
    def program(job):
        import random

        random.seed(job.seed)
        first = random.random()
        job.classical(square(1))
        return os.getpid(), first, random.random()

    results = qloom.run(program, **SEVERAL).results
    assert len({pid for pid, *_ in results} | {os.getpid()}) == 4

    def alone(seed):
        import random

        numbers = random.Random(seed)
        return numbers.random(), numbers.random()

    assert [tuple(rest) for _pid, *rest in results] == [alone(seed) for seed in range(3)]


def test_errors_name_the_line_of_the_program():
    def program(job):
        if job.name == "j2":
            return int("no number")  # this line
        return job.classical(square(2))

    outcome = qloom.run(program, **SEVERAL)
    line = program.__code__.co_firstlineno + 2
    assert outcome.results == [[4], None, [4]]
    (error,) = outcome.errors
    assert isinstance(error, JobError)
    assert str(error).startswith("job j2: the program raised ValueError: invalid literal")
    assert f"(test_sync_processes.py, line {line})" in str(error)


def test_a_failed_task_and_a_cancelled_call_raise_where_they_were_made():
    def program(job):
        call = job.start_quantum(delay(1000.0))
        try:
            job.classical(fail(job.name))
        except TaskFailed as error:
            failed = str(error)
        call.cancel()
        try:
            call.result()
        except asyncio.CancelledError:
            return failed

    outcome = qloom.run(program, **SEVERAL)
    assert ["ValueError: j" in result for result in outcome.results] == [True] * 3
    assert outcome.events[-1].at_us < 10_000_000


def test_bad_input_stays_one_line():
    def program(job):
        job.classical("no task")

    outcome = qloom.run(program, **SEVERAL)
    assert [type(error) for error in outcome.errors] == [InputError] * 3
    assert "expected a task" in str(outcome.errors[0])


def test_a_process_that_dies_fails_its_job_alone():
    def program(job):
        job.classical(square(1))
        if job.name == "j3":
            os.kill(os.getpid(), signal.SIGKILL)
        return job.classical(square(2))

    outcome = qloom.run(program, **SEVERAL)
    assert outcome.results == [[4], [4], None]
    assert str(outcome.errors[0]).startswith("job j3: the process of the program was killed by SIGKILL")


def test_threads_make_calls_in_real_time_and_are_refused_in_virtual_time(tmp_path, monkeypatch):
    def program(job):
        results = []

        def elsewhere():
            try:
                results.append(job.classical(square(3)))
            except InputError as error:
                results.append(str(error))

        _thread.start_new_thread(elsewhere, ())  # as a C library does
        while not results:
            pass
        return results

    monkeypatch.setenv("QLOOM_HOME", str(tmp_path))
    assert qloom.run(program, jobs=2).results == [[[9]]] * 2
    refused = qloom.run(program, **SEVERAL).results
    assert all("virtual time" in result[0] for result in refused)


def test_a_cancelled_run_ends_its_programs(tmp_path, monkeypatch):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path / "home"))
    left = tmp_path / "left"
    left.mkdir()

    def program(job):
        (left / f"{job.name}.pid").write_text(str(os.getpid()))
        try:
            if job.name == "j2":
                raise RuntimeError("end it")
            job.quantum(delay(600.0))
        finally:
            (left / f"{job.name}.cleaned").touch()

    def interrupt():
        while len(list(left.glob("*.pid"))) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        qloom.run(program, jobs=2)
    assert (left / "j1.cleaned").exists()
    for pid in left.glob("*.pid"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


def test_modules_that_others_put_into_the_working_directory_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "qloom").mkdir()
    (tmp_path / "qloom" / "__init__.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.chdir(tmp_path)
    assert qloom.run(lambda job: job.name, **SEVERAL).results == ["j1", "j2", "j3"]
