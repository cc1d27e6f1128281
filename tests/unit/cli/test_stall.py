"""A command whose run makes no progress says who waits for what, and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from qloom.cli import stall
from qloom.journal.file import FILE_NAME

STUCK = """
import asyncio, time
from qloom import call

def work():
    return 1

async def program(job):
    await job.classical(call(work))
    {waits}
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("waits", "strategy", "expected"),
    [
        ("await asyncio.Event().wait()", "offload", ["job j1 is between two phases, in the program's own code"]),
        ("time.sleep(600)", "offload", ["job j1 is between two phases, in the program's own code"]),
        ("await asyncio.Event().wait()", "coschedule", ["job j2", "job j1 holds"]),
    ],
)
def test_a_run_that_stalls_says_who_waits_for_what(tmp_path, waits, strategy, expected):
    (tmp_path / "stuck.py").write_text(STUCK.format(waits=waits))
    words = ["-m", "qloom", "run", "stuck.py", "--strategy", strategy, "--nodes", "1", "--jobs", "2", "--quiet"]
    running = subprocess.Popen(
        [sys.executable, *words],
        cwd=tmp_path,
        env={**os.environ, "QLOOM_STALL_S": "0.5"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said: list[str] = []
        while not all(any(part in line for line in said) for part in ["nothing has happened for", *expected]):
            line = running.stderr.readline()
            assert line, f"it ended and said {said}"
            said.append(line)
        assert running.poll() is None
    finally:
        running.send_signal(signal.SIGKILL)
        running.communicate()


def test_a_task_that_takes_long_is_no_stall(tmp_path):
    started = {
        "n": 1,
        "at_us": 5,
        "event": "task_started",
        "job": "j1",
        "work": "w.0",
        "name": "work",
        "nodes": ["n1"],
    }
    ended = {"n": 2, "at_us": 9, "event": "task_ended", "job": "j1", "work": "w.0", "state": "failed", "error": "no"}
    journal = tmp_path / FILE_NAME
    begun = {"n": 0, "at_us": 0, "event": "run_started", "version": 1, "world": "local"}
    for events, is_stall in (([begun, started], False), ([begun, started, ended], True)):
        journal.write_text("".join(json.dumps(event) + "\n" for event in events))
        assert bool(stall._who_waits(journal, 60.0)) is is_stall
