"""What the journals of this run and of earlier ones let a job expect, each with a confidence.

A prediction is the median of the last values of its kind. Its confidence is how often they lay within a quarter
of it, with one miss counted that was not seen: 0.5 after one value, 0.8 after four that agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from qloom.journal.event import Event
from qloom.journal.events import (
    Called,
    Claimed,
    Granted,
    JobEnded,
    QuantumEnded,
    QuantumQueued,
    QuantumStarted,
    Requested,
    Returned,
    Speculated,
    TaskEnded,
    TaskStarted,
    WorkerStarted,
)
from qloom.journal.file import Journal
from qloom.journal.handover import since_handed_on
from qloom.ports import Clock, Prediction
from qloom.ports import Forecast as ForecastPort

KEPT = 15  # values of a kind: the cluster of an hour ago says little
CALL = ""  # no task has this name: from the call for a quantum result to its return
NEAR = 0.25
NEAR_S = 0.5  # below this, the jitter of the engine is all that is seen


class _Values:
    """The last values of one kind, and the average of all."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=KEPT)
        self._count = 0
        self.average = 0.0

    def add(self, value: float) -> None:
        self._last.append(value)
        self._count += 1
        self.average += (value - self.average) / self._count

    def prediction(self) -> Prediction | None:
        if not self._last:
            return None
        middle = median(self._last)
        near = sum(abs(value - middle) <= max(NEAR_S, NEAR * middle) for value in self._last)
        return Prediction(middle, near / (len(self._last) + 1))


@dataclass
class _JobState:
    """What one job has under way, by the id of the work."""

    tasks: dict[str, tuple[str, int]] = field(default_factory=dict)  # name, since
    quantum: dict[str, tuple[str, int | None]] = field(default_factory=dict)  # name, executing since
    requests: dict[str, int] = field(default_factory=dict)
    offered: dict[str, int] = field(default_factory=dict)  # spare work that was not asked for yet
    calls: dict[str, int] = field(default_factory=dict)  # for quantum results, since
    had_result: bool = False  # of a quantum task; the next classical call tells what comes after one


class Forecaster:
    """Learns from the events of all jobs of a run as they happen."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._states: dict[str, _JobState] = {}
        self._values: dict[tuple[str, str], _Values] = {}
        self._after_quantum: Sequence[str] = ()
        self._used = 0
        self._missed = 0
        self._nodes: dict[str, None] = {}  # that were granted

    def learn(self, events: Iterable[Event]) -> None:
        """Take an earlier run in."""
        for event in since_handed_on(events):
            self.observe(event)
        self._states.clear()

    def observe(self, event: Event) -> None:
        """Take one event in."""
        if isinstance(event, WorkerStarted) and event.node in self._nodes:  # else it is for a lane of a QPU
            self._add("wait", "worker", round(event.seconds * 1e6))
        if not event.job:
            return
        state = self._states.setdefault(event.job, _JobState())
        at_us = event.at_us
        match event:
            case TaskStarted():
                state.tasks[event.work] = (event.name, at_us)
                if not event.spare:
                    self._asked_for(state, event.work, at_us)
            case TaskEnded():
                name, since_us = state.tasks.pop(event.work, ("", at_us))
                if event.state == "done":
                    self._add("task", name, at_us - since_us)
            case QuantumQueued():
                state.quantum[event.work] = (event.name, None)
            case QuantumStarted():
                state.quantum[event.work] = (state.quantum[event.work][0], at_us)
            case QuantumEnded():
                name, started_us = state.quantum.pop(event.work, ("", None))
                if event.state == "done" and started_us is not None:
                    self._add("quantum", name, at_us - started_us)
                    state.had_result = True
            case Called() if event.kind == "quantum":
                state.calls[event.call] = at_us
            case Returned() if event.call in state.calls:
                self._add("quantum", CALL, at_us - state.calls.pop(event.call))
            case Called() if event.kind == "classical" and state.had_result:
                state.had_result = False
                self._after_quantum = tuple(event.names)
            case Requested() if event.nodes and not event.grow:
                state.requests[event.lease] = at_us
            case Granted() if event.lease in state.requests:
                self._add("wait", "nodes", at_us - state.requests.pop(event.lease))
                self._nodes.update(dict.fromkeys(event.nodes))
            case Speculated():
                self._forget_offers(state)
                state.offered.update(dict.fromkeys(event.works, at_us))
            case Claimed():
                self._asked_for(state, event.work, at_us)
            case JobEnded():
                self._forget_offers(state)

    def _asked_for(self, state: _JobState, work: str, at_us: int) -> None:
        offered_us = state.offered.pop(work, None)
        if offered_us is not None:
            self._used += 1
            self._add("spare", "ahead", at_us - offered_us)

    def _forget_offers(self, state: _JobState) -> None:
        """A program that offers the next work, or ends, has had its chance to ask for the last."""
        self._missed += len(state.offered)
        state.offered.clear()

    def _add(self, kind: str, name: str, duration_us: int) -> None:
        self._values.setdefault((kind, name), _Values()).add(duration_us / 1e6)

    def predict(self, kind: str, name: str) -> Prediction | None:
        """From the last values of this kind, of whichever job."""
        values = self._values.get((kind, name))
        return None if values is None else values.prediction()

    def average_s(self, kind: str, name: str) -> float:
        """Of all values of this kind; 0 if there is none."""
        values = self._values.get((kind, name))
        return 0.0 if values is None else values.average

    def of(self, job: str) -> Forecast:
        """What one job may expect."""
        return Forecast(self, self._states.setdefault(job, _JobState()))

    @property
    def after_quantum(self) -> Sequence[str]:
        """What a job asked for when it last had a quantum result."""
        return self._after_quantum

    @property
    def spare_use(self) -> float:
        """The share of offered work that was asked for; the program is trusted until it was seen to be wrong."""
        return (self._used + 1) / (self._used + self._missed + 1)


def learn(journal: Journal, earlier: Sequence[Sequence[Event]]) -> Forecaster:
    """A forecaster that knows earlier runs, and goes on learning as the journal grows."""
    forecaster = Forecaster(journal.clock)
    for events in earlier:
        forecaster.learn(events)
    journal.listeners.append(forecaster.observe)
    return forecaster


class Forecast(ForecastPort):
    """What one job may expect."""

    def __init__(self, learned: Forecaster, state: _JobState, by: float = 1.0) -> None:
        self._learned = learned
        self._state = state
        self._by = by

    def scaled(self, by: float) -> Forecast:
        """The same with every time multiplied."""
        return Forecast(self._learned, self._state, self._by * by)

    def _predict(self, kind: str, name: str) -> Prediction | None:
        seen = self._learned.predict(kind, name)
        return None if seen is None else Prediction(seen.value * self._by, seen.confidence)

    def task_s(self, name: str) -> Prediction | None:
        """Seconds that a task of this name runs."""
        return self._predict("task", name)

    def node_wait_s(self) -> Prediction | None:
        """Seconds from a request for nodes until they can be used: granted, and a worker started there."""
        nodes, worker = self._predict("wait", "nodes"), self._predict("wait", "worker")
        if nodes is None or worker is None:
            return nodes
        return Prediction(nodes.value + worker.value, min(nodes.confidence, worker.confidence))

    def average_node_wait_s(self) -> float:
        """The same over all waits: a few long ones count for what they are."""
        return self._by * (self._learned.average_s("wait", "nodes") + self._learned.average_s("wait", "worker"))

    def quantum_left_s(self) -> Prediction | None:
        """The latest of the tasks that are out; one that is still queued may start now."""
        now_us = self._learned.clock.now_us()
        latest: Prediction | None = None
        for name, started_us in self._state.quantum.values():
            takes = self._predict("quantum", name)
            if takes is None:
                return None
            left_s = takes.value - (now_us - started_us) / 1e6 if started_us is not None else takes.value
            if latest is None or left_s > latest.value:
                latest = Prediction(left_s, takes.confidence)
        return latest

    def average_quantum_s(self) -> float:
        """From the call to the result, the wait for the QPU included."""
        return self._by * self._learned.average_s("quantum", CALL)

    def tasks_after_quantum(self) -> Sequence[str]:
        """Names of the tasks that came after a quantum result."""
        return self._learned.after_quantum

    def spare_ahead_s(self) -> Prediction | None:
        """Seconds from the offer of spare work until it is asked for."""
        return self._predict("spare", "ahead")

    def spare_use(self) -> float:
        """The share of spare work that was asked for later."""
        return self._learned.spare_use
