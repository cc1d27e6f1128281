"""The local world as a user meets it when things go wrong: tasks that fail, exit, die, print, or return too much."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import qloom
from qloom import call, command, delay, task
from qloom.errors import InputError, QuantumFailed, TaskFailed
from qloom.journal.accounting import read_history
from qloom.site import Qpu, Site
from tests.unit.light import run, run_tasks, square, worker_pid

DEADLINE_S = 30.0


class Peculiar:
    def __init__(self, x):
        self.x = x

    def doubled(self):
        return Peculiar(2 * self.x)


def failure(*tasks, **more):
    """The one error of a phase; nothing may be left open after it."""
    outcome = run_tasks(*tasks, **more)
    (error,) = outcome.errors
    assert error.exit_code == 1
    assert error.job == "j1"
    assert all(interval.state != "open" for interval in read_history(outcome.events).intervals)
    assert outcome.events[-1]["state"] == "failed"
    return error


def wait_until(condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def is_alive(pid):
    """Whether a process runs; one that has ended and was not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# What a task does to itself


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


# What goes in and comes out


def test_huge_arguments_and_results():
    data = os.urandom(1 << 20) * 20
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
    logs = b"".join(path.read_bytes() for path in (outcome.directory / "logs").iterdir())
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


# QPUs


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


# The driver's end is the workers' end


DRIVER = """
import os, qloom, sys
from qloom import command, task, call

@task
def tell(directory):
    with open(os.path.join(directory, str(os.getpid())), "w"):
        pass

async def program(job, directory=""):
    await job.classical(tell(directory), call(tell.function, directory).needs(cpus=1))
    script = f"touch {directory}/$$; exec sleep 1000"
    await job.classical(command("sh", "-c", script), call(spin, directory), command("sh", "-c", script, "again"))

def spin(directory):
    open(os.path.join(directory, f"{os.getpid()}"), "w").close()
    open(os.path.join(directory, "spinning"), "w").close()
    while True:
        pass
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_driver(sent, tmp_path):
    program, pids = tmp_path / "prog.py", tmp_path / "pids"
    program.write_text(DRIVER)
    pids.mkdir()
    qloom_script = Path(sys.executable).with_name("qloom")
    driver = subprocess.Popen(
        [str(qloom_script), "run", str(program), "--set", f"directory={pids}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:

        def all_started():
            assert driver.poll() is None, driver.communicate()
            return (pids / "spinning").exists() and len(list(pids.iterdir())) >= 5

        wait_until(all_started, "the tasks did not start")
        running = [int(path.name) for path in pids.iterdir() if path.name.isdigit()]
        assert sum(map(is_alive, running)) >= 3
        driver.send_signal(sent)
        _, errors = driver.communicate(timeout=DEADLINE_S)
        for pid in running:
            wait_until(lambda pid=pid: not is_alive(pid), f"process {pid} outlived the driver")
    finally:
        driver.kill()
        driver.communicate()
    if sent is signal.SIGKILL:
        assert driver.returncode == -signal.SIGKILL
    else:
        assert driver.returncode == 130
        assert errors == "qloom: interrupted: go on with qloom resume last\n"


def wander(directory):
    os.environ["WANDERED"] = "yes"
    os.chdir(directory)


def whereabouts():
    return os.getcwd(), os.environ.get("WANDERED")


async def wandering(job, directory):
    await job.classical(call(wander, directory))
    (before,) = await job.classical(call(whereabouts))
    return before


def test_a_task_leaves_no_trace_in_its_worker_for_the_next_one(tmp_path):
    outcome = qloom.run(wandering, site=Site(nodes=1), parameters={"directory": str(tmp_path)}, in_memory=True)
    assert outcome.result == (os.getcwd(), None)
