"""Usual mistakes of programs get an error that says what to write."""

from __future__ import annotations

import asyncio

import pytest

import qloom
from qloom import delay, task
from qloom.errors import InputError, JobError, QloomError
from qloom.programs.load import load_program


@task(expected_s=1.0)
def square(x):
    return x * x


async def indexes_a_call(job):
    return job.classical(square(1))[0]


async def unpacks_a_call(job):
    (one,) = job.classical(square(1))
    return one


async def reads_a_call(job):
    return job.quantum({("x", "x"): -1.0}).energy


async def adds_to_a_call(job):
    return 1.0 + job.quantum(delay(1.0, 2.0))


async def passes_a_call(job):
    return await job.classical(job.classical(square(1)))


async def has_a_call_as_argument(job):
    return await job.classical(square(job.classical(square(1))))


async def returns_a_call(job):
    return job.classical(square(1))


@pytest.mark.parametrize(
    "program",
    [
        indexes_a_call,
        unpacks_a_call,
        reads_a_call,
        adds_to_a_call,
        passes_a_call,
        has_a_call_as_argument,
        returns_a_call,
    ],
    ids=lambda program: program.__name__,
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_forgotten_await(program):
    with pytest.raises(QloomError, match="await"):
        _ = qloom.run(program, world="virtual", in_memory=True).result


def test_a_call_that_nobody_awaited_is_noted():
    async def program(job):
        job.classical(square(1))

    assert qloom.run(program, world="virtual", in_memory=True).notes == [
        "job j1 ended before 1 call that it made: classical(square) (await it, or ask its handle for the result)"
    ]


@pytest.mark.parametrize("tasks", [[square(1), square(2)], (square(1),)], ids=["list", "tuple"])
def test_a_list_in_place_of_tasks(tasks):
    with pytest.raises(
        InputError, match=r"expected a task, got a .*pass tasks one by one: job\.classical\(\*tasks\)"
    ):
        _ = qloom.run(lambda job: job.classical(tasks), world="virtual", in_memory=True).result


def test_a_generator_in_place_of_tasks():
    async def program(job):
        await job.classical(square(n) for n in range(3))

    with pytest.raises(InputError, match=r"job\.classical\(\*tasks\)"):
        _ = qloom.run(program, world="virtual", in_memory=True).result


def awaits_inside(job):
    async def main():
        return await job.classical(square(1))

    coroutine = main()
    try:
        coroutine.send(None)
    finally:
        coroutine.close()


def runs_a_loop(job):
    coroutine = asyncio.sleep(0)
    try:
        asyncio.run(coroutine)
    finally:
        coroutine.close()


@pytest.mark.parametrize("program", [awaits_inside, runs_a_loop], ids=lambda program: program.__name__)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_synchronous_program_that_awaits(program):
    with pytest.raises(JobError, match=r"leave out `await`, or write `async def`"):
        _ = qloom.run(program, world="virtual", in_memory=True).result


def test_await_in_a_plain_function(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("def program(job):\n    return await job.classical()\n")
    with pytest.raises(InputError, match=r"'await' outside async function.*line 2.*async def"):
        load_program(str(path))


def test_a_handle_taken_for_its_result():
    def program(job):
        return job.start_classical(square(1))[0]

    with pytest.raises(JobError, match=r"\.result\(\)"):
        _ = qloom.run(program, world="virtual", in_memory=True).result
