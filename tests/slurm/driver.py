"""A driver in a process of its own, and ways to wait for what it does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from qloom.journal import home as runs
from qloom.journal.event import Event
from qloom.journal.file import FILE_NAME, ended_as, read_events
from qloom.journal.results import ResultStore
from qloom.programs.load import load_program
from qloom.runs.runner import Plan
from qloom.runs.submit import submit
from tests.journals import as_lines
from tests.slurm.waiting import until

QLOOM = str(Path(sys.executable).with_name("qloom"))
DEADLINE_S = 180.0
END_S = 480.0  # of a run in Slurm's hands


def start(*words):
    """`qloom WORDS` in the background."""
    return subprocess.Popen([QLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_with_its_sallocs(driver: int) -> None:
    """End a driver as a machine that loses power does: nobody is left to give anything back."""
    os.kill(driver, signal.SIGSTOP)  # or it would see the end of its sallocs
    for child in children(driver):
        if Path(f"/proc/{child}/comm").read_text().strip() == "salloc":
            os.kill(child, signal.SIGSTOP)  # and they the end of their commands
            for held in children(child):
                os.kill(held, signal.SIGKILL)  # or it would cancel the job
            os.kill(child, signal.SIGKILL)  # with SIGTERM it would give back what it holds or asks for
    os.kill(driver, signal.SIGKILL)


def children(process: int) -> list[int]:
    """Of the main thread of a process."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def wait_until(condition, what, within_s=DEADLINE_S):
    """Until a condition gives something, and that; not for ever."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    queue = subprocess.run(["squeue", "-o", "%i %j %T %r %N"], capture_output=True, text=True)
    nodes = subprocess.run(["sinfo", "-N", "-o", "%N %T %E"], capture_output=True, text=True)
    raise AssertionError(f"never saw {what}\n{queue.stdout}{queue.stderr}{nodes.stdout}{nodes.stderr}")


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
            (
                e
                for e in as_lines(events_of(home))
                if e["event"] == name and all(e.get(k) == v for k, v in fields.items())
            ),
            None,
        )

    return wait_until(seen, f"{name} {fields or ''}")


def queue(testbed):
    """What is in Slurm's queue: `{id: state}`."""
    said = testbed.run("squeue", "-h", "-o", "%i %T")
    return dict(line.split() for line in said.splitlines())


def left(testbed):
    """The same without what has ended and is being cleared away: that is nobody's any more."""
    return {id: state for id, state in queue(testbed).items() if state != "COMPLETING"}


def reap():
    """What `qloom slurm reap` releases."""
    said = subprocess.run([QLOOM, "slurm", "reap", "--json"], capture_output=True, text=True, check=True)
    return json.loads(said.stdout)


# Drivers that live in Slurm


def submitted(source: str, strategy: str, driver: str) -> str:
    """A run that is in Slurm's hands; its name."""
    return submit(Plan(load_program(source), strategy=strategy, world="slurm"), driver).run


def ended(name: str) -> list[Event]:
    """The events of a run, once the last of its drivers has ended."""
    events: list[Event] = []

    def last_driver_has_ended() -> bool:
        events[:] = read_events(runs.find_run(name))
        return ended_as(events) not in (None, "handed on")

    until(last_driver_has_ended, END_S)
    return events


def result(name: str, events: list[Event]) -> object:
    """What the job of a run gave; what else there is to say if it gave nothing."""
    found = [event for event in as_lines(events) if event["event"] == "job_ended" and event["state"] == "done"]
    return ResultStore(runs.find_run(name) / "results").load(found[0]["result"]) if found else events[-3:]
