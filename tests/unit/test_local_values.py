"""What goes into a task of the local world and what comes out: huge, printed, or not to be sent."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from random import Random

import pytest

import qloom
from qloom import call, command, task
from qloom.errors import InputError
from qloom.site import Site
from tests.unit.light import run, run_tasks, square
from tests.unit.processes import failure


class Peculiar:
    def __init__(self, x):
        self.x = x

    def doubled(self):
        return Peculiar(2 * self.x)


def test_huge_arguments_and_results():
    data = Random(0).randbytes(1 << 20) * 20
    (back,) = run_tasks(call(bytes.upper, data)).result
    assert back == data.upper()


def test_huge_results_are_kept_for_a_resumption():
    async def program(job):
        return await job.classical(call(bytes, 5_000_000))

    outcome = qloom.run(program, world="local")
    assert outcome.result == [bytes(5_000_000)]
    assert (outcome.directory / "journal.jsonl").stat().st_size < 100_000
    assert len(list((outcome.directory / "results").iterdir())) == 2  # of the task, and of the job


def prints_a_lot():
    for _ in range(3000):
        print("x" * 100)
        sys.stderr.write("y" * 100 + "\n")
    os.write(1, b"straight to the file\n")
    os.system("echo from a child")
    return "clean", sys.stdin.read()


def test_what_tasks_print_goes_to_a_log_and_not_into_results():
    outcome = qloom.run(_printing_program, world="local")
    assert outcome.result == [("clean", ""), 16]
    logs = b"".join(path.read_bytes() for path in (outcome.directory / "logs" / "j1").iterdir())
    assert b"straight to the file" in logs
    assert b"from a child" in logs


async def _printing_program(job):
    return await job.classical(call(prints_a_lot), square(4))


def test_lambdas_closures_methods_and_classes():
    factor = 3

    def closure(x):
        return factor * x

    @task
    def decorated_inside(x):
        return closure(x) + 1

    results = run_tasks(
        call(lambda: "lambda"),
        call(closure, 2),
        decorated_inside(2),
        call(Peculiar(5).doubled),
        call("text".upper),
        call(dict, a=1),
    ).result
    assert results[:3] == ["lambda", 6, 7]
    assert results[3].x == 10
    assert results[4:] == ["TEXT", {"a": 1}]


@pytest.mark.parametrize("world", ["local", "virtual"])
def test_a_closure_is_sent_as_it_is_when_it_is_called(world):
    """What a closure holds may change between two calls; a worker has a copy of its own each time."""

    async def program(job):
        seen = []

        def count():
            seen.append("in the worker")
            return len(seen)

        first = await job.classical(call(count))
        again = await job.classical(call(count))
        seen.append("in the program")
        return first + again + await job.classical(call(count))

    assert qloom.run(program, world=world, in_memory=True, site=Site(nodes=1)).result == [1, 1, 2]


def test_functions_of_a_script_can_be_tasks(tmp_path):
    """As in the first lines that a newcomer types: everything in one file that is run with python."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import dataclasses, qloom

        OFFSET = 100

        @dataclasses.dataclass
        class Answer:
            value: int

        @qloom.task(expected_s=0.1)
        def decorated(x):
            return Answer(x + OFFSET)

        def plain(x):
            return decorated.function(x).value + 1

        async def program(job):
            first, second, third = await job.classical(
                decorated(1), qloom.call(plain, 2), qloom.call(lambda: OFFSET)
            )
            assert isinstance(first, Answer)
            return first.value, second, third

        if __name__ == "__main__":
            for world in ("virtual", "local"):
                print(qloom.run(program, world=world, in_memory=True).result)
        """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    assert done.stdout == "(101, 103, 100)\n" * 2


def test_what_cannot_be_sent_back_is_told():
    def returns_a_generator():
        return (x for x in range(3))

    message = failure(call(returns_a_generator)).message
    assert message.startswith("task returns_a_generator on n1 raised TypeError")


def test_what_cannot_be_sent_at_all_is_wrong_input():
    with open(os.devnull) as file:

        async def program(job):
            return await job.classical(call(square.function, file))

        (error,) = run(program).errors
    assert isinstance(error, InputError)
    assert "value of type TextIOWrapper can neither be kept nor sent to a worker" in error.message


def test_commands_hand_over_their_output_and_files(tmp_path):
    script = 'echo "$WORD for $1"; echo content > out.txt; echo warned >&2'
    made = command("sh", "-c", script, "name", "me", cwd=str(tmp_path), env={"WORD": "hello"}, capture=("out.txt",))
    (result,) = run_tasks(made).result
    assert (result.exit_code, result.stdout, result.stderr) == (0, "hello for me\n", "warned\n")
    assert result.files == {"out.txt": b"content\n"}


def test_a_task_knows_its_nodes_and_job():
    names = ("QLOOM_NODES", "QLOOM_CPUS", "QLOOM_JOB")
    environment = call(lambda: [os.environ[name] for name in names]).needs(nodes=2)
    assert run_tasks(environment).result == [["n1,n2", "1", "j1"]]
