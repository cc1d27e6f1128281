"""How far a run is, and how much longer it takes: estimated from an earlier run of the same plan.

Calls of a program return in much the same order each time. A run that has had as many results as an earlier one had
at some moment is taken to be at that moment. A program that has never run under this plan has no estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qloom.errors import QloomError
from qloom.journal import home
from qloom.journal.event import Event
from qloom.journal.events import RunStarted
from qloom.journal.file import ended_as, read_events, read_start
from qloom.journal.fold import RunState, fold
from qloom.journal.state import JobState

EARLIER_RUNS = 50  # that are looked at, the latest first
PLAN = ("program", "program_digest", "parameters", "strategy", "options", "world", "jobs", "engine")


@dataclass(frozen=True)
class EndEstimate:
    """How far a run is."""

    done: float  # as a part of the whole
    left_s: float
    calls: int  # of all jobs until the end
    basis: str  # the run that it was estimated from


def left_by_progress_s(job: JobState, now_us: int) -> float | None:
    """How much longer a job takes by its own reports of progress; None if they are too few to say."""
    if len(job.progress) < 2 or job.ended is not None:
        return None
    first, last = job.progress[0], job.progress[-1]
    if last.of is None or last.done <= first.done:
        return None
    each_us = (last.at_us - first.at_us) / (last.done - first.done)
    return max(0.0, each_us * (last.of - last.done) - (now_us - last.at_us)) / 1e6


class EarlierRun:
    """How an earlier run went: when its calls returned, and when it ended."""

    def __init__(self, run: str, events: Sequence[Event]) -> None:
        ended = fold(events)
        self.run = run
        self.is_whole = not ended.breaks
        self._returned_us = sorted(call.returned_us for call in ended.trace.calls)
        self._end_us = ended.now_us

    def estimate(self, now: RunState, now_us: int) -> EndEstimate | None:
        """How far a run of the same plan is, `now_us` after it began."""
        if not self._end_us:
            return None
        moments_us = [0, *self._returned_us, self._end_us]
        place = min(now.returned_calls, len(self._returned_us))
        since_us = max(0, now_us - now.returned_us)
        at_us = min(moments_us[place] + since_us, moments_us[place + 1])
        left_s = (self._end_us - at_us) / 1e6
        return EndEstimate(at_us / self._end_us, left_s, len(self._returned_us), self.run)


def find_earlier(start: RunStarted, own: str) -> EarlierRun | None:
    """The latest run of the same plan that is done and was never stopped; None if there is none."""
    try:
        names = [name for name in home.run_names() if name != own][-EARLIER_RUNS:]
        for name in reversed(names):
            directory = home.runs_directory() / name
            other = read_start(directory)
            if other is None or any(getattr(other, field) != getattr(start, field) for field in PLAN):
                continue
            events = read_events(directory)
            if ended_as(events) == "done" and (found := EarlierRun(name, events)).is_whole:
                return found
    except QloomError:  # a run that is being removed
        return None
    return None
