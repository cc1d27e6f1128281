"""A driver in a process of its own, and ways to wait for what it does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from qloom.journal.file import FILE_NAME, read_events

QLOOM = str(Path(sys.executable).with_name("qloom"))
DEADLINE_S = 90.0


def start(*words):
    """`qloom WORDS` in the background."""
    return subprocess.Popen([QLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(condition, what):
    """Until a condition gives something, and that; not for ever."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"never saw {what}")


def events_of(home):
    """The journal of the latest run, as far as it is written."""
    found = sorted(home.glob(f"runs/*/{FILE_NAME}"))
    try:
        return read_events(found[-1].parent) if found else []
    except Exception:
        return []  # the first line is being written


def wait_for_event(home, name, **fields):
    """The first event of that name with these fields."""

    def seen():
        return next(
            (e for e in events_of(home) if e["event"] == name and all(e.get(k) == v for k, v in fields.items())), None
        )

    return wait_until(seen, f"{name} {fields or ''}")


def queue(testbed):
    """What is in Slurm's queue: `{id: state}`."""
    said = testbed.run("squeue", "-h", "-o", "%i %T")
    return dict(line.split() for line in said.splitlines())


def reap():
    """What `qloom slurm reap` releases."""
    said = subprocess.run([QLOOM, "slurm", "reap", "--json"], capture_output=True, text=True, check=True)
    return json.loads(said.stdout)
