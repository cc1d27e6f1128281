"""Waiting for something to become true."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(holds: Callable[[], object], within_s: float = 120.0) -> None:
    """Returns as soon as it holds; fails if it does not in time."""
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, f"not so within {within_s:g} s"
        time.sleep(0.05)


def kill_controller(testbed):
    """Once it has saved what it knows: the jobs that it forgets in a crash are another matter."""
    since_s, saved = time.time(), testbed.directory / "state" / "job_state"
    change = testbed.run("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true").strip()
    testbed.run("scancel", change)
    until(lambda: saved.exists() and saved.stat().st_mtime > since_s)
    testbed.kill("slurmctld")
