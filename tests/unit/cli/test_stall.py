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
    {works}

async def program(job):
    await job.classical(call(work))
    {waits}
"""
HANG = "time.sleep(600)"
IN_BETWEEN = "job j1 is between two phases, in the program's own code"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("works", "waits", "strategy", "expected"),
    [
        ("pass", "await asyncio.Event().wait()", "offload", [IN_BETWEEN]),
        ("pass", HANG, "offload", [IN_BETWEEN]),
        ("pass", "await asyncio.Event().wait()", "coschedule", ["job j2", "job j1 holds"]),
        (HANG, "pass", "coschedule", ["job j1 runs 1 task: work on n1 (for "]),
    ],
)
def test_a_run_that_stalls_says_who_waits_for_what(tmp_path, works, waits, strategy, expected):
    (tmp_path / "stuck.py").write_text(STUCK.format(works=works, waits=waits))
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


@pytest.mark.parametrize("never", ["inf", "nan", "-1", "0"])
def test_a_time_that_never_comes_means_never(monkeypatch, never):
    monkeypatch.setenv("QLOOM_STALL_S", never)
    assert stall.quiet_s() == 0


def test_a_time_that_is_none_is_refused_in_one_line():
    words = [sys.executable, "-m", "qloom", "runs"]
    environment = {**os.environ, "QLOOM_STALL_S": "soon"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("qloom: QLOOM_STALL_S is 'soon'")


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
        assert bool(stall._who_waits(journal, 60.0, 60.0)) is is_stall
