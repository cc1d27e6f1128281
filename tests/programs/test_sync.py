"""Synchronous programs: the same calls without `await`, in virtual time and on this machine."""

from __future__ import annotations

import _thread
import asyncio

import pytest
from scipy.optimize import brentq, minimize

import qloom
from qloom import delay, task
from qloom.errors import InputError, JobError, TaskFailed
from qloom.job.greenlets import require_sync
from qloom.journal.events import TaskEnded
from qloom.strategies import STRATEGIES


@task(expected_s=2.0, stand_in=lambda x: x * x)
def square(x):
    return x * x


@task(expected_s=1.0)
def fail(x):
    raise ValueError(x)


def loop(job, size=3):
    squares = job.classical(*(square(n) for n in range(size)))
    sample = job.quantum({(n, n): -float(value) for n, value in enumerate(squares)}, expected_s=3.0)
    return squares, sample.energy


async def awaited(job, size=3):
    squares = await job.classical(*(square(n) for n in range(size)))
    sample = await job.quantum({(n, n): -float(value) for n, value in enumerate(squares)}, expected_s=3.0)
    return squares, sample.energy


def virtual(program, **plan):
    return qloom.run(program, world="virtual", in_memory=True, **plan)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_synchronous_program_does_what_the_awaited_one_does(strategy):
    one, other = (virtual(program, strategy=strategy) for program in (loop, awaited))
    assert one.result == other.result == ([0, 1, 4], -5.0)
    assert [event.as_dict() for event in one.events[1:]] == [event.as_dict() for event in other.events[1:]]


def test_calls_overlap_by_handles():
    def program(job):
        answer = job.start_quantum(delay(10.0, "there"))
        work = job.start_classical(square(3))
        assert not answer.done()
        return answer.result(), work.result(), answer.done()

    outcome = virtual(program)
    assert outcome.result == ("there", [9], True)
    assert outcome.events[-1].at_us == 10_000_000  # the task ran while the QPU did


def test_a_cancelled_call_ends_and_the_program_goes_on():
    def program(job):
        call = job.start_quantum(delay(1000.0))
        job.classical(square(2))
        call.cancel()
        try:
            call.result()
        except asyncio.CancelledError:
            return job.classical(square(4))

    outcome = virtual(program)
    assert outcome.result == [16]
    assert outcome.events[-1].at_us < 10_000_000


def test_blocks_speculation_and_shared_data():
    def program(job):
        data = job.share([1, 2, 3])
        with job.quantum_block():
            answers = [job.quantum(delay(1.0, n)) for n in range(3)]
        job.speculate(square(7))
        job.quantum(delay(5.0))
        return answers, data.value, job.classical(square(7)), job.seed, job.name

    assert virtual(program, strategy="offload").result == ([0, 1, 2], [1, 2, 3], [49], 0, "j1")


def test_an_error_in_a_block_comes_through():
    def program(job):
        with job.quantum_block():
            job.quantum(delay(1.0))
            raise KeyError("mine")

    with pytest.raises(JobError, match="KeyError: 'mine'"):
        _ = virtual(program).result


def test_a_failed_task_raises_where_it_was_called():
    def program(job):
        try:
            job.classical(fail(3))
        except TaskFailed as error:
            return str(error)

    assert "ValueError: 3" in virtual(program).result


@pytest.mark.parametrize("method", ["COBYLA", "Nelder-Mead", "SLSQP", "L-BFGS-B"])
def test_callbacks_of_scipy_may_wait(method):
    def program(job):
        def cost(x):
            (value,) = job.classical(square(float(x[0]) - 1.0))
            return value

        return round(float(minimize(cost, [3.0], method=method).x[0]), 2)

    assert virtual(program).result == 1.0


def test_a_program_waits_in_nested_callbacks():
    def program(job):
        def outer(x):
            return brentq(lambda y: job.classical(square(y))[0] - 4.0 - x, 0.0, 10.0)

        return round(brentq(lambda x: outer(x) - 3.0, 0.0, 20.0), 6)

    assert virtual(program).result == 5.0


def test_the_same_program_runs_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path))
    outcome = qloom.run(loop, strategy="workflow", parameters={"size": 2})
    assert outcome.result == ([0, 1], -1.0)
    assert len([event for event in outcome.events if isinstance(event, TaskEnded)]) == 2


def test_a_program_that_returns_a_coroutine_is_refused():
    async def inner():
        return 1

    def program(job):
        return inner()

    with pytest.raises(InputError, match=r"returned a coroutine.*async def program"):
        _ = virtual(program).result


def test_calls_of_another_thread_or_of_no_program_are_refused():
    def program(job):
        refused = []

        def elsewhere():
            try:
                job.classical(square(1))
            except InputError as error:
                refused.append(str(error))

        _thread.start_new_thread(elsewhere, ())  # as a C library does
        while not refused:
            pass
        return refused

    (refused,) = virtual(program).result
    assert "in the thread that runs the program" in refused
    with pytest.raises(InputError, match="synchronous programs"):
        require_sync()
