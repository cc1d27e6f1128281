"""Notebooks: the example is executed by a real kernel; runs where an event loop runs already."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import qloom
from qloom.apart import wait_apart
from qloom.errors import JournalError, QloomError
from qloom.journal.events import TaskStarted
from qloom.journal.file import read_events
from qloom.runs.plan import require_source

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


@qloom.task
def double(n):
    return 2 * n


async def program(job, n=21):
    return (await job.classical(double(n)))[0]


def sync_program(job, n=21):
    return job.classical(double(n))[0]


@qloom.task
def wait_for_ever(path):
    import time

    Path(path).touch()
    time.sleep(600)


async def waits(job, path):
    await job.classical(wait_for_ever(path))


def shown(cell, kind):
    return next("".join(output["data"][kind]) for output in cell["outputs"] if kind in output.get("data", ()))


def test_the_example_runs_in_a_real_kernel(tmp_path):
    notebook = nbformat.read(EXAMPLE, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert shown(code[1], "text/plain") == "-4.0"
    assert "<table>" in shown(code[2], "text/html")
    assert "<svg" in shown(code[2], "text/html")
    (line,) = code[3]["outputs"][0]["text"].splitlines()
    assert line.startswith("<Outcome of 20")
    assert ": 1 job done, weave, local, " in line
    assert shown(code[4], "text/plain") == "{'offload': -4.0, 'malleable': -4.0, 'weave': -4.0}"
    assert "ZeroDivisionError" in code[5]["outputs"][0]["text"]
    (gone,) = code[6]["outputs"][0]["text"].splitlines()
    assert (
        "fragile, was defined in a notebook, which has no file to load it from (pass it again: qloom.resume('" in gone
    )
    assert shown(code[7], "text/plain") == "-0.5"


@pytest.mark.parametrize("world", ["local", "virtual"])
@pytest.mark.parametrize("function", [program, sync_program])
def test_a_run_works_where_a_loop_runs(world, function):
    async def cell():
        return qloom.run(function, world=world, in_memory=True).result

    assert asyncio.run(cell()) == 42


def test_an_awaited_run_lets_the_loop_go_on():
    async def main():
        ticks, running = 0, asyncio.ensure_future(qloom.run_async(program, in_memory=True))
        while not running.done():
            ticks += 1
            await asyncio.sleep(0.001)
        return ticks, running.result().result

    ticks, result = asyncio.run(main())
    assert result == 42
    assert ticks > 1


def test_cancelling_an_awaited_run_ends_it_and_what_it_has_started(tmp_path):
    started = []

    async def main():
        running = asyncio.ensure_future(
            qloom.run_async(waits, parameters={"path": str(tmp_path / "begun")}, listener=started.append)
        )
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert any(isinstance(event, TaskStarted) for event in started)
    (directory,) = Path(qloom.journal.home.runs_directory()).iterdir()
    last = read_events(directory)[-1]
    assert (last.event, last.state) == ("run_ended", "interrupted")


def test_errors_pass_through_the_thread():
    async def cell():
        qloom.run(program, world="nowhere")

    with pytest.raises(QloomError, match="nowhere"):
        asyncio.run(cell())


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("/tmp/ipykernel_12/34.py:vqe", "vqe, was defined in a notebook"),
        ("<stdin>:vqe", "vqe, was defined in a notebook"),
        ("/nowhere/vqe.py:program", "the program of R is gone: /nowhere/vqe.py"),
    ],
)
def test_a_program_whose_source_is_gone_is_one_line(source, complaint):
    with pytest.raises(JournalError, match=complaint) as raised:
        require_source(source, "R")
    assert "\n" not in str(raised.value)


def test_the_face_is_complete():
    assert set(qloom.__all__) <= set(dir(qloom))
    assert all(getattr(qloom, name) is not None for name in dir(qloom))


def test_a_run_that_is_cancelled_before_its_loop_begins_does_not_begin(tmp_path):
    begun, may_go_on = threading.Event(), threading.Event()

    def run():
        begun.set()
        may_go_on.wait()
        return qloom.run(waits, parameters={"path": str(tmp_path / "begun")}, in_memory=True)

    async def cell():
        running = asyncio.create_task(wait_apart(run))
        await asyncio.to_thread(begun.wait)
        running.cancel()
        await asyncio.sleep(0)
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cell())
    assert not (tmp_path / "begun").exists()
