"""What a program reports beside its result: how far it is, and pictures among its files."""

from __future__ import annotations

import math
import os
from pathlib import Path, PurePosixPath
from typing import Any

from qloom.errors import InputError
from qloom.journal.event import Record
from qloom.journal.events import Progressed
from qloom.world import Clock

EVERY_US = 250_000  # a loop may report each of its thousands of turns; nobody can see more than a few a second
LONGEST_NOTE = 200
HINT = 'job.progress(3, 10, "energy -1.1")'


class ProgressReports:
    """Records how far a job is, a few times a second at most; the end of it always."""

    def __init__(self, job: str, clock: Clock, record: Record) -> None:
        self._job = job
        self._clock = clock
        self._record = record
        self._reported_us: int | None = None

    def report(self, done: float, of: float | None, note: str) -> None:
        """Record that `done` of `of` is done."""
        for number in (done,) if of is None else (done, of):
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
                raise InputError(f"expected how much is done, got {number!r}", job=self._job, hint=HINT)
        if of is not None and done > of:
            raise InputError(f"more is done than there is: {done:g} of {of:g}", job=self._job, hint=HINT)
        now_us = self._clock.now_us()
        if self._reported_us is not None and now_us - self._reported_us < EVERY_US and done != of:
            return
        self._reported_us = now_us
        self._record(Progressed(done=done, of=of, note=str(note)[:LONGEST_NOTE] or None))


def save_plot(directory: Path | None, figure: Any, name: str) -> Path | None:
    """Save a figure whole or not at all, so that a resumed program may do it again."""
    save = getattr(figure, "savefig", None)
    if save is None:
        raise InputError(f"expected a figure, got {type(figure).__name__}", hint="job.save_plot(plt.gcf())")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.suffix:
        raise InputError(f"{name!r} cannot be a picture among the files of a job", hint='such as "energy.png"')
    if directory is None:
        return None
    target = directory / path
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = target.with_name(f".{os.getpid()}.{target.name}")
    save(part)
    part.replace(target)
    return target
