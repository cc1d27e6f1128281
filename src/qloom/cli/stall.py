"""Reports who waits for what when the run of a command has made no progress for a while.

A thread looks at the journal that this process writes, so that it also reports when the program itself blocks. It
ends nothing: a job may wait in Slurm's queue for days. In virtual time the loop detects it when nothing is left.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from pathlib import Path

from qloom.errors import InputError, QloomError

VARIABLE = "QLOOM_STALL_S"
QUIET_S = 60.0  # then twice as long each time, up to
LONGEST_S = 3600.0
TASK_PAUSES = 10  # of this length, if a task executes: most are not stuck but long
LOOKS_PER_PAUSE = 10


def quiet_s() -> float:
    """Seconds without progress after which a command reports what it waits for; 0: never."""
    given = os.environ.get(VARIABLE) or QUIET_S
    try:
        seconds = float(given)
    except ValueError:
        raise InputError(f"{VARIABLE} is {given!r}", hint="a number of seconds, or 0 to report nothing") from None
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def watch() -> None:
    """Begin to watch whatever run this process writes, in the background."""
    if (pause_s := quiet_s()) > 0:
        threading.Thread(target=_watch, args=(pause_s,), name="qloom-stall", daemon=True).start()


def _watch(pause_s: float) -> None:
    seen: tuple[Path, int] | None = None
    since_s, due_s = time.monotonic(), pause_s
    while True:
        time.sleep(min(pause_s, LONGEST_S) / LOOKS_PER_PAUSE)
        now_s, looked = time.monotonic(), _look()
        if looked is None or looked != seen:
            seen, since_s, due_s = looked, now_s, pause_s
        elif (still_s := now_s - since_s) >= due_s:
            due_s = still_s + min(still_s, LONGEST_S)
            if lines := _who_waits(looked[0], still_s, pause_s):
                print("\n  ".join(lines), file=sys.stderr, flush=True)
            elif still_s < TASK_PAUSES * pause_s:
                due_s = TASK_PAUSES * pause_s


def _look() -> tuple[Path, int] | None:
    """The journal that this process writes, and how long it is."""
    file = sys.modules.get("qloom.journal.file")  # which may be on its way in: another thread imports it
    if not getattr(file, "written", None):
        return None
    from qloom.journal.file import FILE_NAME, written

    path = written[-1] / FILE_NAME
    try:
        return path, path.stat().st_size
    except OSError:
        return None  # the run has left nothing


def _who_waits(journal: Path, since_s: float, pause_s: float) -> list[str]:
    """The lines to print: none if work runs and has not done so for long, or the run is over or in virtual time."""
    from qloom.journal.file import ended_as, read_events, start_of
    from qloom.journal.fold import fold
    from qloom.views.explain import explain

    try:
        events = read_events(journal.parent)
    except QloomError:
        return []
    if ended_as(events) is not None or start_of(events).world == "virtual":
        return []
    if since_s < TASK_PAUSES * pause_s and fold(events).executes:
        return []
    now_us = events[-1].at_us + round(since_s * 1e6)
    run = journal.parent.name
    return [f"qloom: nothing has happened for {since_s:.0f} s:", *explain(events, alive=True, now_us=now_us, run=run)]
