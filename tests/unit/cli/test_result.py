"""`qloom result`: what came of a run, later and from another process."""

from __future__ import annotations

import os
import signal
import subprocess

from qloom.errors import JobError, Refused, TaskFailed, error_from
from qloom.journal import home
from qloom.journal.file import FILE_NAME
from tests.unit.cli.typed import FAILURES, QLOOM, QUICK, write

CLASSES = """
    import dataclasses

    @dataclasses.dataclass
    class Found:
        value: int

    async def program(job):
        return Found(7)
"""
WAITS = """
    import time
    from qloom import task

    @task(expected_s=60)
    def forever():
        print("begun", flush=True)
        time.sleep(600)

    async def program(job):
        await job.classical(forever())
"""


def test_the_result_is_printed_as_run_does(cli):
    ran = cli("run", "phases", *QUICK, "--world", "virtual")
    again = cli("result")
    assert (again.code, again.out, again.err) == (0, ran.out, ran.err)
    quiet = cli("result", "last", "--quiet")
    assert (quiet.out, quiet.err) == (ran.out, "")


def test_json_has_results_and_figures(cli):
    ran = cli("run", "phases", *QUICK, "--world", "virtual", "--jobs", 2, "--json")
    assert cli("result", "--json").json == ran.json


def test_classes_of_the_program_file_are_found(cli):
    ran = cli("run", write("classes.py", CLASSES), "-q")
    assert cli("result", "-q").out == ran.out == "Found(value=7)\n"


def test_a_failed_run_has_its_error_and_exit_code(cli):
    ran = cli("run", f"{write('failures.py', FAILURES)}:fails", "-q")
    again = cli("result", "-q")
    assert (again.code, again.out, again.err) == (ran.code, ran.out, ran.err)
    assert again.code == 1
    assert "no luck" in again.err
    assert cli("result", "--json").json["errors"][0]["error"] == "TaskFailed"


def test_a_run_that_was_killed_has_none_yet(cli):
    program = write("waits.py", WAITS)
    running = subprocess.Popen([str(QLOOM), "run", program, "-q"], start_new_session=True)
    try:
        while not (home.run_names() and "task_started" in (home.find_run("last") / FILE_NAME).read_text()):
            assert running.poll() is None
        name = home.find_run("last").name
        said = cli("result", name)
        assert (said.code, said.err) == (
            2,
            f"qloom: run {name} has no result yet: it is still running (qloom explain {name})\n",
        )
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    said = cli("result", name)
    assert said.code == 2
    assert f"run {name} has no result yet: it was killed (qloom resume {name})" in said.err


def test_errors_are_read_back_as_what_they_were():
    for error in (TaskFailed("no luck", job="j1"), Refused("no", hint="ask again")):
        read = error_from(error.as_dict())
        assert (type(read), str(read), read.exit_code) == (type(error), str(error), error.exit_code)
    assert type(error_from({"error": "OfTomorrow", "message": "no"})) is JobError


LEAVES = """
    async def program(job):
        (job.output_dir / "sub").mkdir()
        (job.output_dir / "sub" / "table.csv").write_text("1," * 700)
"""


def test_show_lists_the_files_of_each_job(cli):
    assert cli("run", write("leaves.py", LEAVES), "-q").code == 0
    directory = home.find_run("last") / "output" / "j1"
    assert f"files of j1, in {directory}: sub/table.csv (1.4 kB)\n" in cli("show").out
    assert cli("show", "--json").json["files"] == {"j1": {"sub/table.csv": 1400}}
