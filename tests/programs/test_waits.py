"""What a synchronous program may wait for: in virtual time only for its job, in real time for anything."""

from __future__ import annotations

import concurrent.futures
import re
import socket
import threading
import time
from time import sleep

import pytest

import qloom
from qloom import task
from qloom.errors import InputError


@task(expected_s=2.0)
def square(x):
    time.sleep(0.001)  # tasks may: they are computed, and what they take is expected
    return x * x


def sleeps(job):
    time.sleep(0.001)


def sleeps_by_name(job):
    sleep(0.001)


def starts_a_thread(job):
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


def waits_for_a_future(job):
    future = concurrent.futures.Future()
    return future.result(timeout=0.01)


def uses_a_pool(job):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(int, "7").result()


def connects(job):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())


USE_INSTEAD = {
    sleeps: r"time\.sleep.*job\.spend\(0\.001\)",
    sleeps_by_name: r"time\.sleep.*job\.spend\(0\.001\)",
    starts_a_thread: r"a thread cannot run.*job\.start_classical",
    waits_for_a_future: r"Future\.result.*job\.start_quantum",
    uses_a_pool: r"a thread cannot run.*job\.start_classical",
    connects: r"cannot connect.*job\.quantum",
}


@pytest.mark.parametrize("program", USE_INSTEAD, ids=lambda program: program.__name__)
def test_waits_for_something_outside_are_refused_in_virtual_time(program):
    (error,) = qloom.run(program, world="virtual", in_memory=True).errors
    assert isinstance(error, InputError)
    assert re.search(USE_INSTEAD[program], str(error))
    assert re.search(r"\(test_waits\.py, line \d+\)", str(error))


def tries_everything(job):
    refused = []
    for attempt in USE_INSTEAD:
        try:
            attempt(job)
        except InputError:
            refused.append(attempt.__name__)
    return refused


def test_they_are_refused_in_processes_too():
    everything = [program.__name__ for program in USE_INSTEAD]
    results = qloom.run(tries_everything, world="virtual", in_memory=True, jobs=2).results
    assert results == [everything, everything]


@pytest.mark.parametrize("program", [sleeps, starts_a_thread, uses_a_pool, connects], ids=lambda one: one.__name__)
def test_in_real_time_they_are_left_alone(program):
    assert qloom.run(program, in_memory=True).errors == []


def test_tasks_and_whoever_comes_after_a_run_may_wait():
    before = (time.sleep, threading.Thread.start, concurrent.futures.Future.result, socket.socket.connect)
    assert qloom.run(lambda job: job.classical(square(3)), world="virtual", in_memory=True).result == [9]
    after = (time.sleep, threading.Thread.start, concurrent.futures.Future.result, socket.socket.connect)
    assert after == before
    sleep(0)


def test_what_a_library_starts_to_compute_is_left_alone(tmp_path, monkeypatch):
    joblib = pytest.importorskip("joblib")

    def program(job):
        return joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(abs)(n) for n in (-1, -2))

    assert qloom.run(program, world="virtual", in_memory=True).result == [1, 2]
