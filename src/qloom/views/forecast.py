"""What the journals of this run and of earlier ones let a job expect, each with a confidence.

A prediction is the median of the last values of its kind. Its confidence is how often they lay within a quarter
of it, with one miss counted that was not seen: 0.5 after one value, 0.8 after four that agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median

from qloom.journal.event import Event
from qloom.journal.file import Journal
from qloom.journal.fold import RunState
from qloom.journal.intervals import Trace
from qloom.journal.state import JobState
from qloom.ports import Forecast, Prediction
from qloom.world import Clock

MOST_NEW = 1000  # events that are noted before they are taken in
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
        self._prediction: Prediction | None = None  # None: there is none, or not since the last value

    def add(self, value: float) -> None:
        self._prediction = None
        self._last.append(value)
        self._count += 1
        self.average += (value - self.average) / self._count

    def prediction(self) -> Prediction | None:
        if self._prediction is None and self._last:
            middle = median(self._last)
            distance = max(NEAR_S, NEAR * middle)
            near = sum([abs(value - middle) <= distance for value in self._last])
            self._prediction = Prediction(middle, near / (len(self._last) + 1))
        return self._prediction


class Forecaster:
    """Learns from what the jobs of a run have done. Events are taken in when somebody asks, or there are many."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._run = RunState()
        self._new: list[Event] = []  # observed, and not taken in
        self._values: dict[tuple[str, str], _Values] = {}
        self._after_quantum: Sequence[str] = ()
        self._used = 0
        self._missed = 0
        self._nodes: dict[str, None] = {}  # that were granted

    def learn(self, events: Iterable[Event]) -> None:
        """Take an earlier run in."""
        for event in events:
            self.observe(event)
        self.catch_up()
        self._run = RunState()

    def observe(self, event: Event) -> None:
        """Note one event."""
        self._new.append(event)
        if len(self._new) >= MOST_NEW:
            self.catch_up()

    def catch_up(self) -> None:
        """Take in what was observed."""
        if not self._new:
            return
        run, events = self._run, self._new
        self._new = []
        for event in events:
            run.apply(event)
        if run.after_quantum is not None:
            self._after_quantum = run.after_quantum
        self._learn(run.trace)
        run.trace.clear()

    def _learn(self, new: Trace) -> None:
        """Take in what has ended with the last events."""
        for interval in new.busy:
            if interval.state == "done":
                kind = "quantum" if interval.kind == "quantum" else "task"
                self._add(kind, interval.label, interval.end_us - interval.begin_us)
        for finished in new.calls:
            if finished.call.kind == "quantum":
                self._add("quantum", CALL, finished.returned_us - finished.call.at_us)
        for wait in new.waits:
            if wait.is_for_new_nodes and wait.outcome == "granted":
                self._add("wait", "nodes", wait.observed_us)
                self._nodes.update(dict.fromkeys(wait.granted_nodes))
        for worker in new.workers:  # after the grants: a worker starts on a node that was granted
            if worker.node in self._nodes:  # else it is for a lane of a QPU
                self._add("wait", "worker", round(worker.seconds * 1e6))
        for offer in new.offers:
            if offer.asked_us is None:
                self._missed += 1
            else:
                self._used += 1
                self._add("spare", "ahead", offer.asked_us - offer.offered_us)

    def _add(self, kind: str, name: str, duration_us: int) -> None:
        self._values.setdefault((kind, name), _Values()).add(duration_us / 1e6)

    def predict(self, kind: str, name: str) -> Prediction | None:
        """From the last values of this kind, of whichever job."""
        self.catch_up()
        values = self._values.get((kind, name))
        return None if values is None else values.prediction()

    def average_s(self, kind: str, name: str) -> float:
        """Of all values of this kind; 0 if there is none."""
        self.catch_up()
        values = self._values.get((kind, name))
        return 0.0 if values is None else values.average

    def of(self, job: str) -> JobForecast:
        """What one job may expect."""
        return JobForecast(self, self._run.job(job))

    @property
    def after_quantum(self) -> Sequence[str]:
        """What a job asked for when it last had a quantum result."""
        self.catch_up()
        return self._after_quantum

    @property
    def spare_use(self) -> float:
        """The share of offered work that was asked for; the program is trusted until it was seen to be wrong."""
        self.catch_up()
        return (self._used + 1) / (self._used + self._missed + 1)


def learn(journal: Journal, earlier: Sequence[Sequence[Event]]) -> Forecaster:
    """A forecaster that knows earlier runs, and goes on learning as the journal grows."""
    forecaster = Forecaster(journal.clock)
    for events in earlier:
        forecaster.learn(events)
    journal.listen(forecaster.observe)
    return forecaster


class JobForecast(Forecast):
    """What one job may expect."""

    def __init__(self, learned: Forecaster, job: JobState, by: float = 1.0) -> None:
        self._learned = learned
        self._job = job
        self._by = by

    def scaled(self, by: float) -> JobForecast:
        """The same with every time multiplied."""
        return JobForecast(self._learned, self._job, self._by * by)

    def _predict(self, kind: str, name: str) -> Prediction | None:
        seen = self._learned.predict(kind, name)
        return seen if seen is None or self._by == 1.0 else Prediction(seen.value * self._by, seen.confidence)

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
        self._learned.catch_up()
        now_us = self._learned.clock.now_us()
        latest: Prediction | None = None
        if not self._job.executing and not self._job.queued:
            return None
        out = [(task.label, task.begin_us) for task in self._job.executing.values()]
        for name, started_us in [*out, *((task.name, now_us) for task in self._job.in_queue)]:
            takes = self._predict("quantum", name)
            if takes is None:
                return None
            left_s = takes.value - (now_us - started_us) / 1e6
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
