"""Waits that end: polls that back off (ranks may share cores), and a watchdog for MPI calls that have no timeout."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from qloom.errors import JobError

T = TypeVar("T")
FIRST_S, LONGEST_S = 0.0001, 0.01
FORWARD_S = 0.5  # a launcher drops what it has not passed on yet when it is told to abort


def wait_for(look: Callable[[], T | None], within_s: float | None, what: str) -> T:
    """What `look` returns as soon as it is not None; `JobError` if that takes longer than `within_s`."""
    until = None if within_s is None else time.monotonic() + within_s
    pause_s = FIRST_S
    while (found := look()) is None:
        if until is not None and time.monotonic() > until:
            raise JobError(f"{what} did not come within {within_s:g} s")
        time.sleep(pause_s)
        pause_s = min(LONGEST_S, pause_s * 2)
    return found


@contextmanager
def watchdog(within_s: float, what: str) -> Iterator[None]:
    """End all ranks if the body takes longer: a blocking MPI call cannot be called off, only ended with its world."""

    def bark() -> None:
        from mpi4py import MPI

        print(f"qloom: {what} did not end within {within_s:g} s", file=sys.stderr, flush=True)
        time.sleep(FORWARD_S)
        MPI.COMM_WORLD.Abort(1)

    timer = threading.Timer(within_s, bark)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
