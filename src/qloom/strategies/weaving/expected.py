"""What a job may count on: how long tasks run, when nodes and quantum results come, which phase comes after which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from qloom.model import Work
from qloom.ports import Forecast, Prediction

FOREVER_S = float("inf")


class Expected:
    """Predictions, as far as they are sure enough to act on."""

    def __init__(self, forecast: Forecast | None, confidence: float, skew: float) -> None:
        self._forecast = forecast and forecast.scaled(skew)
        self._confidence = confidence
        self._skew = skew

    def _sure(self, ask: Callable[[Forecast], Prediction | None]) -> Prediction | None:
        prediction = ask(self._forecast) if self._forecast is not None else None
        return prediction if prediction is not None and prediction.confidence >= self._confidence else None

    def _sure_s(self, ask: Callable[[Forecast], Prediction | None]) -> float | None:
        prediction = self._sure(ask)
        return None if prediction is None else prediction.value

    def named_s(self, name: str) -> float | None:
        """How long a task of this name runs."""
        return self._sure_s(lambda forecast: forecast.task_s(name))

    def task_s(self, work: Work) -> float:
        """How long a task runs; for ever if nobody knows, so that it shares a node with no other."""
        if work.task.expected_s is not None:
            return work.task.expected_s * self._skew
        learned_s = self.named_s(work.task.name)
        return FOREVER_S if learned_s is None else learned_s

    def longest_first(self, tasks: Sequence[Work]) -> list[Work]:
        """The order in which tasks fill nodes best."""
        return sorted(tasks, key=self.task_s, reverse=True)

    def nodes_filled(self, tasks: Sequence[Work], capacity_s: float) -> int:
        """How many nodes tasks fill that run one after another."""
        return nodes_filled([self.task_s(work) for work in tasks], capacity_s)

    def node_wait_s(self) -> float:
        """How long nodes take to come; nothing, as long as nobody knows."""
        return self._sure_s(lambda forecast: forecast.node_wait_s()) or 0.0

    def average_node_wait_s(self) -> float:
        """The same over all waits, however different they were."""
        return 0.0 if self._forecast is None else self._forecast.average_node_wait_s()

    def average_quantum_s(self) -> float:
        """How long a quantum phase takes, the wait for the QPU included."""
        return 0.0 if self._forecast is None else self._forecast.average_quantum_s()

    def quantum_left(self) -> Prediction | None:
        """When the quantum results that the job awaits could be there."""
        return self._sure(lambda forecast: forecast.quantum_left_s())

    def tasks_after_quantum(self) -> Sequence[str]:
        """Names of the tasks that other jobs and earlier runs asked for after a quantum result."""
        return self._forecast.tasks_after_quantum() if self._forecast is not None else ()

    def spare_ahead_s(self) -> float:
        """How long before it is needed spare work is offered."""
        return self._sure_s(lambda forecast: forecast.spare_ahead_s()) or 0.0

    def spare_is_useful(self) -> bool:
        """Whether enough of the spare work so far was asked for later."""
        return self._forecast is None or self._forecast.spare_use() >= self._confidence


def nodes_filled(lengths_s: Sequence[float], capacity_s: float) -> int:
    """How many nodes tasks fill that run one after another, for about `capacity_s` on each (first fit decreasing)."""
    filled_s: list[float] = []
    for length_s in sorted(lengths_s, reverse=True):
        for place, taken_s in enumerate(filled_s):
            if taken_s + length_s <= capacity_s < FOREVER_S:
                filled_s[place] += length_s
                break
        else:
            filled_s.append(length_s)
    return len(filled_s)


class Coming(NamedTuple):
    """A task that will be asked for."""

    seconds: float
    nodes: int


class PhaseOrder:
    """The phases of one job so far."""

    def __init__(self, expected: Expected) -> None:
        self.in_quantum = False
        self._expected = expected
        self._last: tuple[str, ...] = ()  # names of the tasks of the last classical phase
        self._leads: dict[tuple[str, ...], bool] = {}  # whether a quantum phase came after tasks of these names
        self._nodes: dict[str, int] = {}  # of tasks by name
        self._had_result = False  # a quantum phase is over and no task came after it yet
        self._after_quantum: list[list[tuple[str, float]]] = [[], []]  # what came after the last two: names, seconds

    def classical_begins(self, tasks: Sequence[Work]) -> None:
        """Take note of a classical phase."""
        if self._had_result:
            self._had_result = False
            self._after_quantum = [self._after_quantum[1], self._with_lengths(tasks)]
        if not self.in_quantum:
            self._leads.setdefault(self._last, False)
        self._last = tuple(work.task.name for work in tasks)
        self._nodes |= {work.task.name: work.task.nodes for work in tasks}

    def quantum_begins(self) -> None:
        """Take note of a quantum phase."""
        self.in_quantum = True
        self._leads[self._last] = True

    def quantum_ends(self) -> None:
        """Take note of its end."""
        self.in_quantum = False
        self._had_result = True

    def quantum_may_follow(self) -> bool:
        """Whether a quantum phase has come after tasks like the last ones before, or they are new."""
        return self._leads.get(self._last, True)

    def next_tasks(self, spare: Sequence[Work]) -> list[Coming]:
        """The tasks that come after this quantum phase, spare ones apart; empty if not known."""
        before, last = self._after_quantum
        if last and before == last:
            offered = self._with_lengths(spare)
            known: list[tuple[str, float | None]] = [task for task in last if task not in offered]
        else:
            names = [work.task.name for work in spare]
            after = self._expected.tasks_after_quantum()
            known = [(name, self._expected.named_s(name)) for name in after if name not in names]
        coming = [
            Coming(seconds, self._nodes.get(name, 1)) for name, seconds in known if seconds and seconds < FOREVER_S
        ]
        return coming if len(coming) == len(known) else []

    def _with_lengths(self, tasks: Sequence[Work]) -> list[tuple[str, float]]:
        return [(work.task.name, self._expected.task_s(work)) for work in tasks]
