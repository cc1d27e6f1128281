"""A journal read as intervals: who held what, what was busy meanwhile, and who waited for how long.

This is the fold (`fold.py`) at one moment, with what is open ended then, and what was busy cut to what was held.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from qloom.journal.event import Event
from qloom.journal.events import RunStarted
from qloom.journal.file import start_of
from qloom.journal.fold import RunState, fold
from qloom.journal.intervals import OPEN, Interval, Wait
from qloom.journal.state import DRIVER

HELD_FOR = {"task": "node", "spare": "node", "quantum": "qpu"}  # what is busy, and what is held meanwhile


@dataclass
class History:
    """What a run has done so far."""

    run: RunState
    intervals: list[Interval]
    waits: list[Wait]
    _by_job: dict[str, list[Interval]] = field(default_factory=dict)

    @property
    def start(self) -> RunStarted:
        """The plan of the run."""
        return self.run.start

    @property
    def jobs(self) -> list[str]:
        """The jobs of the run."""
        return [job.name for job in self.run.jobs.values() if job.is_submitted]

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """While nobody ran it: killed, then resumed."""
        return self.run.gaps

    def of(self, job: str | None) -> list[Interval]:
        """The intervals of one job, or (job None) all of them."""
        if job is None:
            return self.intervals
        if not self._by_job:
            for interval in self.intervals:
                self._by_job.setdefault(interval.job, []).append(interval)
        return self._by_job.get(job, [])


def read_history(events: Sequence[Event]) -> History:
    """Fold a journal; what is open when it ends, ends with it."""
    start_of(events)  # raises for a journal without a run
    return history_of(fold(events))


def history_of(run: RunState) -> History:
    """The history of a run up to now. The run itself is left as it is, and may go on."""
    held, busy, waits = list(run.trace.held), list(run.trace.busy), list(run.trace.waits)
    for interval in run.open_intervals():
        if interval.label == DRIVER and run.now_us <= interval.begin_us:
            continue  # lent from the start
        end_us = max(run.now_us, interval.begin_us)
        copy = interval.over(interval.begin_us, end_us, interval.resources)
        copy.state = OPEN
        (busy if interval.work else held).append(copy)
    for wait in run.open_waits():
        waits.append(Wait(wait.kind, wait.job, wait.asked, wait.begin_us, max(run.now_us, wait.begin_us)))
    return History(run, held + _cut_to_held(busy, held), waits)


def _cut_to_held(busy: Sequence[Interval], held: Sequence[Interval]) -> list[Interval]:
    """Cut what was busy to what was held: the end of a task is known only after Slurm has taken its node away.

    A task that ran for less time than it was begun began later: its worker started, or imported modules.
    """
    cut: list[Interval] = []
    leases: dict[tuple[str, str, str], list[Interval]] | None = None
    for interval in busy:
        begin_us, end_us = interval.begin_us, interval.end_us
        if interval.lasted_us is not None:
            begin_us = max(begin_us, end_us - interval.lasted_us)
        if not interval.within_holds(begin_us, end_us):
            leases = _by_resource(held) if leases is None else leases
            cut += _cut(interval, begin_us, leases)
        elif begin_us == interval.begin_us:
            cut.append(interval)
        else:
            cut.append(interval.over(begin_us, end_us, interval.resources))
    return cut


def _by_resource(held: Sequence[Interval]) -> dict[tuple[str, str, str], list[Interval]]:
    leases: dict[tuple[str, str, str], list[Interval]] = {}
    for interval in sorted(held, key=attrgetter("begin_us")):
        for resource in interval.resources:
            leases.setdefault((interval.kind, resource, interval.job), []).append(interval)
    return leases


def _cut(busy: Interval, begin_us: int, leases: dict[tuple[str, str, str], list[Interval]]) -> list[Interval]:
    """The parts of an interval that lie in leases of its resources; resources with the same times stay together."""
    parts: dict[tuple[int, int], list[str]] = {}
    for resource in busy.resources:
        held = leases.get((HELD_FOR[busy.kind], resource, busy.job), [])
        place = bisect_right(held, begin_us, key=attrgetter("begin_us"))
        spans = [
            (max(begin_us, lease.begin_us), min(busy.end_us, lease.end_us))
            for lease in held[max(0, place - 1) : place + 1]  # the one that holds it now, or begins a moment later
        ]
        since_us, until_us = max(spans, key=lambda span: span[1] - span[0], default=(begin_us, begin_us))
        parts.setdefault((since_us, max(since_us, until_us)), []).append(resource)
    return [busy.over(since_us, until_us, resources) for (since_us, until_us), resources in parts.items()]
