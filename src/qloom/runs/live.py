"""A run as its journal has it now: while it runs, after it has ended, and after it was killed.

`watch` and the dashboard look at runs through this alone. It reads what the journal has gained since the last look,
and asks Slurm about the job that a run was handed to, but not more often than every few seconds.
"""

from __future__ import annotations

import time
from pathlib import Path

from qloom.errors import JournalError
from qloom.journal.event import Event
from qloom.journal.events import Resumed
from qloom.journal.file import JournalReader
from qloom.journal.fold import RunState
from qloom.journal.home import run_state
from qloom.journal.queries import SlurmJob
from qloom.views.estimate import EarlierRun, EndEstimate, find_earlier
from qloom.views.explain import explain

SLURM_EVERY_S = 10.0
GOES_ON = ("running", "open", "submitted")


class LiveRun:
    """One run, folded as far as its journal goes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = directory.name
        self.run = RunState()
        self.state = "unreadable"
        self.trouble: str | None = None  # why its journal cannot be read any further
        self._reader = JournalReader(directory)
        self._earlier: EarlierRun | None = None
        self._looks_for_earlier = True
        self._in_job: str | None = None  # the Slurm job that its driver lives in
        self._slurm_job: SlurmJob | None = None
        self._asked_slurm_s = float("-inf")

    @property
    def goes_on(self) -> bool:
        """Whether more events may come without anybody's doing."""
        return self.trouble is None and self.state in GOES_ON

    def refresh(self) -> list[Event]:
        """Read on; returns what is new. A journal that cannot be read says why in `trouble`."""
        new: list[Event] = []
        self.trouble = None
        try:
            while more := self._reader.read():
                new += more
        except JournalError as error:
            self.trouble = str(error)
        for event in new:
            self.run.apply(event)
            if isinstance(event, Resumed):
                self._in_job = event.engine_id
        if self.run.start.n < 0:
            self.trouble = self.trouble or "the journal holds no run yet"
            return new
        self.state = run_state(self.directory, self.run.state_of())
        self._ask_slurm()
        return new

    def _ask_slurm(self) -> None:
        """Slurm knows more of a driver that is, or will be, a job of it than the journal."""
        ended = self.run.ended
        job = ended.engine_id if ended is not None else self._in_job
        if job is None or self.state not in ("submitted", "open", "killed", "interrupted"):
            self._slurm_job = None
            return
        now_s = time.monotonic()
        if now_s - self._asked_slurm_s >= SLURM_EVERY_S:
            self._asked_slurm_s = now_s
            from qloom.worlds.slurm.driver_job import look

            self._slurm_job = look(job)
        if self._slurm_job is not None and self.state in ("submitted", "open"):
            stages = {"waits": "submitted", "holds": "running", "ended": "killed"}
            self.state = stages.get(self._slurm_job.stage, self.state)

    @property
    def now_us(self) -> int:
        """How long ago the run began; for one that does not go on, when its last event was."""
        epoch_us = self.run.start.epoch_us
        if epoch_us is None or not self.goes_on:
            return self.run.now_us
        return max(self.run.now_us, time.time_ns() // 1000 - epoch_us)

    def estimate(self) -> EndEstimate | None:
        """How far it is, if there is an earlier run to estimate from."""
        if not self.goes_on:
            return None
        if self._looks_for_earlier:
            self._looks_for_earlier = False
            self._earlier = find_earlier(self.run.start, self.name)
        return self._earlier.estimate(self.run, self.now_us) if self._earlier is not None else None

    def sentences(self) -> list[str]:
        """What it waits for and why, or where its time went."""
        alive = {"running": True, "killed": False}.get(self.state)
        now_us = self.now_us if self.goes_on else None
        return explain(self.run, alive=alive, now_us=now_us, run=self.name, slurm_job=self._slurm_job)
