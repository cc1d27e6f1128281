"""What a journal already knows: results by content and occurrence, and the calls in their order.

It reads the events themselves rather than the fold: a result counts even where no event says when its work began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from qloom.journal.event import Event
from qloom.journal.events import (
    Called,
    Diverged,
    ProgramComputed,
    QuantumEnded,
    QuantumStarted,
    ResultMissing,
    TaskEnded,
    TaskStarted,
)
from qloom.journal.results import ResultStore
from qloom.model import QuantumWork, Work


@dataclass
class Memory:
    """What one job has done before. Empty for a new job."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)  # work id -> how its result was kept
    calls: dict[str, Called] = field(default_factory=dict)  # call id -> the event that recorded it, in order
    durations_us: dict[str, int] = field(default_factory=dict)  # work id -> how long it ran
    task_names: dict[str, str] = field(default_factory=dict)  # work id -> the name of the classical task
    computed_us: dict[tuple[str | None, bool], int] = field(
        default_factory=dict
    )  # the program itself: `ProgramComputed`
    spent: Counter[float] = field(default_factory=Counter)  # how often the program declared so many seconds
    lost: dict[str, None] = field(default_factory=dict)  # works whose result was lost and has not been made again

    calibrations: dict[str, str] = field(default_factory=dict)  # quantum work -> what its device was calibrated to
    may_differ: bool = False  # the program may differ from its journal: it goes on from there

    @property
    def has_gaps(self) -> bool:
        """Whether work that was lost has to run before the calls that came after it are made again."""
        return bool(self.lost)

    def forget(self, work: str) -> None:
        """The result of a piece of work is lost."""
        self.results.pop(work, None)
        self.lost[work] = None


def recall(events: Sequence[Event], job: str | None = None) -> Memory:
    """The memory of one job of a run, or (job None) of all its jobs together."""
    memory = Memory()
    started: dict[tuple[str, str], int] = {}
    for event in events:
        if job is not None and event.job != job:
            continue
        match event:
            case Called():
                memory.calls[event.call] = event
            case TaskStarted() | QuantumStarted():
                started[event.job, event.work] = event.at_us
                if isinstance(event, TaskStarted):
                    memory.task_names[event.work] = event.name
            case TaskEnded() | QuantumEnded() if event.state == "done" and event.result is not None:
                memory.results.setdefault(event.work, event.result)
                if isinstance(event, QuantumEnded) and event.calibration is not None:
                    memory.calibrations.setdefault(event.work, event.calibration)
                memory.lost.pop(event.work, None)
                begun_us = started.get((event.job, event.work), event.at_us)
                seconds = event.seconds if isinstance(event, TaskEnded) else None
                took_us = round(seconds * 1e6) if seconds is not None else event.at_us - begun_us
                memory.durations_us.setdefault(event.work, took_us)
            case Diverged():
                for call in event.forgotten:
                    memory.calls.pop(call, None)
            case ResultMissing():
                memory.forget(event.work)
            case ProgramComputed(declared=True):
                memory.spent[event.seconds] += 1
            case ProgramComputed():
                memory.computed_us[event.call, event.awaited] = round(event.seconds * 1e6)
    return memory


@dataclass(frozen=True)
class Past:
    """What an earlier run did: how long each piece of work took, and what came out."""

    jobs: dict[str, Memory]
    together: Memory  # for a job that was not there then
    results: ResultStore

    def seconds(self, work: Work | QuantumWork) -> float | None:
        """How long this work took, if it ran then."""
        duration_us = self._memory(work).durations_us.get(work.id)
        return None if duration_us is None else duration_us / 1e6

    def program_s(self, job: str, call: str | None, awaited: bool) -> float | None:
        """How long the program itself computed before this call."""
        computed_us = self.jobs.get(job, self.together).computed_us.get((call, awaited))
        return None if computed_us is None else computed_us / 1e6

    def made(self, job: str, call: str | None) -> bool:
        """Whether the program made this call; None: its end."""
        return call is None or call in self.jobs.get(job, self.together).calls

    @property
    def measures_programs(self) -> bool:
        """Whether that was measured."""
        return bool(self.together.computed_us)

    def has(self, work: Work | QuantumWork) -> bool:
        """Whether the result is known."""
        return work.id in self._memory(work).results

    def result(self, work: Work | QuantumWork) -> Any:
        """What came out of this work."""
        return self.results.load(self._memory(work).results[work.id])

    def _memory(self, work: Work | QuantumWork) -> Memory:
        own = self.jobs.get(work.job)
        return own if own is not None and work.id in own.results else self.together
