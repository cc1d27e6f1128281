"""The budget of a run: how many QPU-seconds its jobs may hold, in whichever world.

It follows the events of the journal, so that what it counts is what the figures say (`qpu_s_held`): a whole device
from grant to release, and a task outside of such a hold while it executes. It knows nothing of who ends the jobs.
"""

from __future__ import annotations

import asyncio

from qloom.errors import BudgetSpent
from qloom.journal.event import Event
from qloom.journal.events import (
    Granted,
    QpuBudgetSpent,
    QpuReleased,
    QuantumEnded,
    QuantumQueued,
    QuantumStarted,
    Released,
)
from qloom.journal.file import Journal
from qloom.worlds.ceiling import Ceiling


class QpuBudget:
    """Counts QPU-seconds; `reached` is done as soon as there are none left."""

    def __init__(self, journal: Journal, most_s: float, used_s: float) -> None:
        self.reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._most_s = most_s
        self._journal = journal
        self._ceiling = Ceiling(journal.clock, most_s, used_s, self._end)
        self._queued: dict[tuple[str, str], None] = {}  # tasks outside of a hold of a whole device
        self._held: dict[tuple[str, str], None] = {}  # leases and tasks that count now
        journal.listen(self._observe)

    def error(self) -> BudgetSpent:
        """Why the run cannot go on."""
        hint = "what is done is kept; give it more with qloom resume --most-qpu-s"
        return BudgetSpent(f"the run has held its budget of {self._most_s:g} QPU-seconds", hint=hint)

    def close(self) -> None:
        """Count no more."""
        self._ceiling.close()

    def _end(self) -> None:
        if not self.reached.done():
            self._journal.record(QpuBudgetSpent(most_qpu_s=self._most_s), durable=True)
            self.reached.set_result(None)

    def _observe(self, event: Event) -> None:
        match event:
            case Granted(hold="whole"):
                self._begin(event.job, event.lease)
            case Released() | QpuReleased():
                self._finish(event.job, event.lease)
            case QuantumQueued() if event.hold != "whole":
                self._queued[event.job, event.work] = None
            case QuantumStarted() if (event.job, event.work) in self._queued:
                self._begin(event.job, event.work)
            case QuantumEnded():
                self._queued.pop((event.job, event.work), None)
                self._finish(event.job, event.work)

    def _begin(self, job: str, what: str) -> None:
        if (job, what) not in self._held:
            self._held[job, what] = None
            self._ceiling.change(1.0)

    def _finish(self, job: str, what: str) -> None:
        if (job, what) in self._held:
            del self._held[job, what]
            self._ceiling.change(-1.0)
