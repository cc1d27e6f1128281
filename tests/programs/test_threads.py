"""A synchronous program in real time: its calls may come from any thread, and it can be cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

import qloom
from qloom import delay, task
from qloom.errors import InputError, TaskFailed
from qloom.job.greenlets import AskingThread


@task(expected_s=0.1)
def square(x):
    return x * x


@task(expected_s=0.1)
def fail(x):
    raise ValueError(x)


def test_calls_of_other_threads_are_bridged_while_the_program_waits_for_them():
    def program(job):
        results = []
        threads = [threading.Thread(target=lambda n=n: results.append(job.classical(square(n)))) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()  # as a JAX function waits for its callbacks
        return sorted(results)

    assert qloom.run(program, in_memory=True).result == [[0], [1], [4]]


def test_the_loop_goes_on_while_the_program_computes():
    def program(job):
        call = job.start_classical(square(3))
        while not call.done():
            pass
        return call.result()

    assert qloom.run(program, in_memory=True).result == [9]


def test_errors_and_cancelled_calls_reach_the_program():
    def program(job):
        call = job.start_quantum(delay(600.0))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            call.result()
        with pytest.raises(TaskFailed, match="ValueError: 3"):
            job.classical(fail(3))
        with job.quantum_block():
            return job.quantum(delay(0.01, "answer"))

    assert qloom.run(program, in_memory=True).result == "answer"


def test_a_cancelled_run_ends_its_program():
    left = []

    def program(job):
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
        try:
            job.quantum(delay(600.0))
        except asyncio.CancelledError:
            try:
                job.classical(square(1))  # it is too late for that
            finally:
                left.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        qloom.run(program, in_memory=True)
    assert left == ["cleaned up"]


def test_asynchronous_code_is_sent_to_await():
    async def main():
        thread = AskingThread(lambda: None)
        with pytest.raises(InputError, match="await the calls"):
            thread.ask("classical")

    asyncio.run(main())
