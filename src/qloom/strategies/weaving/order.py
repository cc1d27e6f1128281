"""Which phase came after which, so that the next one can be prepared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from qloom.model import Work
from qloom.strategies.weaving.expected import FOREVER_S, Expected


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
            self._after_quantum = [self._after_quantum[1], self._told(tasks)]
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
            offered = self._told(spare)
            known: list[tuple[str, float | None]] = [told for told in last if told not in offered]
        else:
            names = [work.task.name for work in spare]
            after = self._expected.tasks_after_quantum()
            known = [(name, self._expected.named_s(name)) for name in after if name not in names]
        coming = [
            Coming(seconds, self._nodes.get(name, 1)) for name, seconds in known if seconds and seconds < FOREVER_S
        ]
        return coming if len(coming) == len(known) else []

    def _told(self, tasks: Sequence[Work]) -> list[tuple[str, float]]:
        return [(work.task.name, self._expected.task_s(work)) for work in tasks]
