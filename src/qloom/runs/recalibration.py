"""What a run does about a device that is recalibrated between two of its answers: warn, stop or continue.

The watch follows the events of the journal, so that it works in every world and through a broker alike. A run goes on
with the calibrations that it has accepted: the first one of each device, and those that were journalled since without
a stop. It knows nothing of who ends the jobs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from qloom.broker.port import BrokerPort
from qloom.errors import CalibrationChanged, InputError, QuantumFailed
from qloom.journal.event import Event
from qloom.journal.events import QuantumEnded, QuantumQueued, Recalibrated
from qloom.journal.file import Journal
from qloom.views.summary import recalibration_in_words

ON_RECALIBRATION = ("warn", "stop", "continue")
USUAL_ACTION = "warn"


def require_action(name: str) -> None:
    """Refuse what a run cannot do about a recalibration."""
    if name not in ON_RECALIBRATION:
        known = f"{', '.join(ON_RECALIBRATION[:-1])} or {ON_RECALIBRATION[-1]}"
        raise InputError(f"unknown answer to a recalibration: {name!r}", hint=f"use {known}")


class CalibrationWatch:
    """Compares the calibrations of answers; `reached` is done if the run is to stop at another one."""

    def __init__(self, journal: Journal, action: str, past: Sequence[Event] = ()) -> None:
        self.reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._journal = journal
        self._action = action
        self._accepted: dict[str, dict[str, str]] = {}  # device -> calibration -> the first task that is known of it
        self._answers: dict[str, dict[str, str]] = {}  # the same for all answers of earlier drivers
        self._tasks: dict[tuple[str, str], tuple[int, str]] = {}  # job and work -> its place in the job, its name
        self._count: Counter[str] = Counter()  # of quantum tasks, by job
        self._stopped_by: Recalibrated | None = None
        for event in past:
            self._learn(event)
        journal.listen(self._observe, QuantumQueued, QuantumEnded)

    def error(self) -> CalibrationChanged:
        """Why the run does not go on."""
        words = recalibration_in_words(self._stopped_by) if self._stopped_by is not None else "recalibrated"
        return CalibrationChanged(
            words, hint="what is done is kept; to go on all the same: qloom resume --on-recalibration continue"
        )

    @property
    def may_stop(self) -> bool:
        """Whether it is to end the run."""
        return self._action == "stop"

    def has_stopped(self) -> bool:
        """Whether the run is to stop: no program is given an answer any more."""
        return self.reached.done()

    async def compare(self, broker: BrokerPort) -> None:
        """Before a resumed run goes on: compare the calibrations that its journal has with those of today.

        An answer that stopped the run is in its journal, and is used if the run goes on.
        """
        for device, known in list(self._accepted.items()):
            for calibration, first in self._answers.get(device, {}).items():
                if calibration not in known:
                    self._act(Recalibrated(device=device, was=list(known)[-1], now=calibration, first=first))
            try:
                now = await broker.calibration(device)
            except QuantumFailed:  # its answers will say
                continue
            if now is not None and now not in known:
                was, first = list(known.items())[-1]
                self._act(Recalibrated(device=device, was=was, now=now, first=first, resumed=True))

    def _learn(self, event: Event) -> None:
        """What an earlier driver has seen, and done about it."""
        match event:
            case QuantumQueued():
                self._count_task(event)
            case QuantumEnded(state="done", device=str(device), calibration=str(calibration)):
                words = self._in_words(event)
                self._accepted.setdefault(device, {calibration: words})
                self._answers.setdefault(device, {}).setdefault(calibration, words)
            case Recalibrated() if event.action != "stop":
                self._accepted.setdefault(event.device, {})[event.now] = event.first

    def _observe(self, event: Event) -> None:
        match event:
            case QuantumQueued():
                self._count_task(event)
            case QuantumEnded(state="done", device=str(device), calibration=str(calibration)):
                known = self._accepted.setdefault(device, {calibration: self._in_words(event)})
                if calibration not in known:
                    first = self._in_words(event)
                    self._act(Recalibrated(device=device, was=list(known)[-1], now=calibration, first=first))

    def _act(self, event: Recalibrated) -> None:
        if self.reached.done():
            return
        event = replace(event, action=self._action)
        self._journal.record(event, durable=True)
        if self._action == "stop":
            self._stopped_by = event
            self.reached.set_result(None)
        else:
            self._accepted[event.device][event.now] = event.first

    def _count_task(self, event: QuantumQueued) -> None:
        if (event.job, event.work) not in self._tasks:
            self._count[event.job] += 1
            self._tasks[event.job, event.work] = self._count[event.job], event.name

    def _in_words(self, event: QuantumEnded) -> str:
        number, name = self._tasks.get((event.job, event.work), (0, ""))
        named = f" ({name})" if name else ""
        return f"quantum task {number}{named} of job {event.job}"
