"""How long work takes, as far as earlier runs or the program say, and its results."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from qloom.errors import TaskFailed
from qloom.journal import home
from qloom.journal.event import Event
from qloom.journal.file import read_events, start_of
from qloom.journal.replay import Memory, Past, recall
from qloom.journal.results import ResultStore
from qloom.model import QuantumWork, Work
from qloom.runs.runner import read_profile


class Uncertainty(NamedTuple):
    """How far durations may be off (sigma of a lognormal): all work of a name together, and each by itself."""

    name: float
    work: float


MEASURED = Uncertainty(0.1, 0.1)
EXPECTED = Uncertainty(0.5, 0.2)


class Known:
    """Earlier runs, newest first, and the results of trials, so that each task is computed once at most."""

    def __init__(self, pasts: Sequence[Past] = (), events: Sequence[Sequence[Event]] = ()) -> None:
        self.events = events  # of the earlier runs, oldest first: strategies that look ahead learn from them
        self._pasts = list(pasts)
        self._by_name = _seconds_by_name(events)
        self._program_s = _program_s(events)
        self._results: dict[str, tuple[ResultStore, dict[str, Any]]] = {}

    @property
    def measured(self) -> bool:
        """Whether there was an earlier run."""
        return bool(self._by_name)

    def past_of(self, work: Work | QuantumWork) -> Past | None:
        """The last run that did this very work."""
        return next((past for past in self._pasts if past.has(work)), None)

    def seconds(self, work: Work | QuantumWork) -> tuple[float, Uncertainty] | None:
        """The duration and its spread: of the same work, as expected, or of other work of the same name."""
        past = self.past_of(work)
        measured_s = None if past is None else past.seconds(work)
        if measured_s is not None:
            return measured_s, MEASURED
        if isinstance(work, QuantumWork):
            return None if work.payload.seconds is None else (work.payload.seconds, EXPECTED)
        if work.task.expected_s is not None:
            return work.task.expected_s, EXPECTED
        named_s = self._by_name.get(work.task.name)
        return None if named_s is None else (named_s, EXPECTED)

    def program_s(self, job: str, call: str | None, awaited: bool) -> float | None:
        """How long the program itself computes before this call: as when it was made, else the mean over all."""
        for past in self._pasts:
            if past.made(job, call):
                return past.program_s(job, call, awaited)
        return None if awaited else self._program_s

    @property
    def measures_programs(self) -> bool:
        """Whether an earlier run says what the program computes itself."""
        return self._program_s is not None

    def remember(self, memory: Memory, store: ResultStore) -> None:
        """Keep the results of a trial for the next one."""
        for work, kept in memory.results.items():
            self._results.setdefault(work, (store, kept))

    def has(self, work: Work | QuantumWork) -> bool:
        """Whether the result is known."""
        return work.id in self._results or self.past_of(work) is not None

    def result(self, work: Work | QuantumWork) -> Any:
        """What came out of this work."""
        if work.id in self._results:
            store, kept = self._results[work.id]
            return store.load(kept)
        past = self.past_of(work)
        assert past is not None  # noqa: S101  `has` came first
        return past.result(work)


class Drawn:
    """Durations of one trial: each name and each piece of work is stretched by a separate factor.

    They are the same under every strategy.
    """

    def __init__(self, known: Known, seed: str) -> None:
        self._known = known
        self._seed = seed
        self.has = known.has
        self.result = known.result
        self.measures_programs = known.measures_programs

    def seconds(self, work: Work | QuantumWork) -> float | None:
        """The duration that is known, stretched."""
        known = self._known.seconds(work)
        if known is None:
            return None
        name = work.payload.name if isinstance(work, QuantumWork) else work.task.name
        seconds, spread = known
        return seconds * self._factor(name, spread.name) * self._factor(work.id, spread.work)

    def program_s(self, job: str, call: str | None, awaited: bool) -> float | None:
        """What the program itself computes, stretched."""
        seconds = self._known.program_s(job, call, awaited)
        return None if seconds is None else seconds * self._factor("the program", MEASURED.name)

    def _factor(self, what: str, spread: float) -> float:
        return Random(f"{self._seed} {what}").lognormvariate(-(spread**2) / 2, spread)


class Replayed:
    """The durations and results of one run, and nothing else: work that did not run then fails."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self.seconds = past.seconds
        self.program_s = past.program_s
        self.measures_programs = past.measures_programs

    def has(self, work: Work | QuantumWork) -> bool:
        """Nothing is computed."""
        return True

    def result(self, work: Work | QuantumWork) -> Any:
        """What came out of this work then."""
        if not self._past.has(work):
            raise TaskFailed("this work did not run in the run that is replayed", job=work.job)
        return self._past.result(work)


def known_of(program: str, *runs: str) -> Known:
    """What these runs have measured, or else the last runs of a program in real time."""
    names = list(runs) or home.runs_of(program)
    pasts, all_events = [], []
    for name in names:
        events = read_events(home.find_run(name))
        if not runs and start_of(events).world == "virtual":
            continue  # it took what was expected: nothing was measured
        past = read_profile(name)
        assert past is not None  # noqa: S101  it was named
        pasts.append(past)
        all_events.append(events)
    return Known(pasts[::-1], all_events)


def _seconds_by_name(all_events: Sequence[Sequence[Event]]) -> dict[str, float]:
    """The mean duration of tasks of each name."""
    seconds: dict[str, list[float]] = {}
    for events in all_events:
        memory = recall(events)
        for work, name in memory.task_names.items():
            if work in memory.durations_us:
                seconds.setdefault(name, []).append(memory.durations_us[work] / 1e6)
    return {name: sum(values) / len(values) for name, values in seconds.items()}


def _program_s(all_events: Sequence[Sequence[Event]]) -> float | None:
    """The mean time that programs computed themselves before a call; None if that was never measured."""
    memories = [recall(events) for events in all_events]
    computed_us = [time_us for memory in memories for time_us in memory.computed_us.values()]
    return sum(computed_us) / 1e6 / max(1, sum(len(memory.calls) for memory in memories)) if computed_us else None
