"""`qloom logs`: what tasks print, as they print it, named by job, phase and task."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from qloom.journal import home
from qloom.output import OutputFile
from qloom.runs.logs import LogReader
from tests.unit.cli.typed import QLOOM, QUICK, write
from tests.unit.processes import DEADLINE_S

PRINTS = """
    import os, sys
    from qloom import call, command, task

    @task
    def say(word):
        print("said", word)
        os.write(2, b"and not ended")

    @task
    def silent():
        return 1

    async def program(job, last="echo end"):
        await job.classical(say("one"), say("two"), silent())
        await job.classical(command("sh", "-c", "echo out; echo err >&2", name="a shell"))
        await job.classical(command("sh", "-c", last))
"""
GO = "echo begun; read word < {pipe}; echo $word"


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(path := tmp_path / "pipe")
    return path


def test_each_line_has_the_name_of_its_task(cli):
    assert cli("run", write("prints.py", PRINTS), "-q").code == 0
    said = cli("logs")
    assert said.out.splitlines() == [
        "j1/001-say-1 | said one",
        "j1/001-say-2 | said two",
        "j1/002-a_shell-1 | out",
        "j1/002-a_shell-1 | err",
        "j1/003-sh-1 | end",
        "j1/001-say-1 | and not ended",
        "j1/001-say-2 | and not ended",
    ]
    assert cli("logs", "--task", "j1/002").out == "j1/002-a_shell-1 | out\nj1/002-a_shell-1 | err\n"
    assert cli("logs", "--task", "nobody").code == 2
    files = list((home.find_run("last") / "logs" / "j1").iterdir())
    assert len(files) == 4  # none for a task that prints nothing
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)


def test_a_run_without_logs_is_one_line(cli):
    cli("run", "phases", *QUICK, "--world", "virtual")
    name = home.find_run("last").name
    said = cli("logs", name)
    assert (said.code, said.err) == (
        2,
        f"qloom: run {name} has no logs: nothing was printed (qloom result {name})\n",
    )


def start(program: str, pipe: Path) -> subprocess.Popen:
    """A run that stands still in its last command, until something is written into the pipe."""
    words = [str(QLOOM), "run", program, "-q", "--set", f"last={GO.format(pipe=pipe)}"]
    running = subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL)
    while not (home.run_names() and list((home.find_run("last") / "logs").glob("j1/003-*"))):
        assert running.poll() is None
    return running


def follow() -> subprocess.Popen:
    """Following, as far as what the last command prints first."""
    words = [str(QLOOM), "logs", "-f", "--task", "sh-1"]
    following = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert following.stdout is not None
    assert following.stdout.readline() == "j1/003-sh-1 | begun\n"
    return following


def test_output_is_followed_while_a_command_runs(pipe):
    running = start(write("prints.py", PRINTS), pipe)
    following = follow()
    pipe.write_text("more\n")
    out, err = following.communicate(timeout=DEADLINE_S)
    assert (out, following.returncode) == ("j1/003-sh-1 | more\n", 0)
    assert err == f"run {home.find_run('last').name}: done\n"
    assert running.wait(DEADLINE_S) == 0


def test_following_ends_when_the_driver_is_killed_and_the_output_is_kept(cli, pipe):
    running = start(write("prints.py", PRINTS), pipe)
    following = follow()
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    _, err = following.communicate(timeout=DEADLINE_S)
    name = home.find_run("last").name
    assert err == f"run {name}: it was killed (qloom resume {name})\n"
    assert "j1/003-sh-1 | begun" in cli("logs", name).out
    assert "j1/001-say-1 | said one" in cli("logs", name).out


def test_a_file_has_the_beginning_and_the_end_of_too_much_output(tmp_path):
    file = OutputFile(str(tmp_path / "logs" / "task.log"), limit=10, last=5)
    for piece in (b"01234567", b"89abcdef", b"ghijk"):
        file.write(piece)
    file.close()
    text = (tmp_path / "logs" / "task.log").read_bytes()
    assert text == b"0123456789\nqloom: 6 bytes of output are left out here\nghijk"


def test_a_reader_goes_on_where_it_was(tmp_path):
    log, reader = tmp_path / "node.log", LogReader(tmp_path)
    log.write_text("one\ntw")
    assert list(reader.read()) == ["node | one"]
    with log.open("a") as file:
        file.write("o\nthree")
    assert list(reader.read()) == ["node | two"]
    assert list(reader.rest()) == ["node | three"]
    log.write_text("anew\n")  # as the log of a run that is resumed from the dashboard again
    assert list(reader.read()) == ["node | anew"]


def test_neither_links_nor_pipes_are_read_as_logs(tmp_path):
    secret, logs = tmp_path / "secret", tmp_path / "logs"
    secret.write_text("secret\n")
    logs.mkdir()
    (logs / "a.log").symlink_to(secret)
    os.mkfifo(logs / "b.log")
    (logs / "c.log").write_text("said\n")
    assert list(LogReader(logs).read()) == ["c | said"]
