"""Tasks of the local world that fail, and processes that end."""

from __future__ import annotations

import time
from pathlib import Path

from qloom.journal.history import read_history
from tests.unit.light import run_tasks

DEADLINE_S = 30.0


def failure(*tasks, **more):
    """The one error of a phase; nothing may be left open after it."""
    outcome = run_tasks(*tasks, **more)
    (error,) = outcome.errors
    assert error.exit_code == 1
    assert error.job == "j1"
    assert all(interval.state != "open" for interval in read_history(outcome.events).intervals)
    assert outcome.events[-1].as_dict()["state"] == "failed"
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
