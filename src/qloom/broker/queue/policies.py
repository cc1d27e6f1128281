"""In which order tasks run: pure rules over those who could run next.

`fifo` can promise a bound on waiting; `fair` and `priority` cannot, and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from qloom.broker.queue.task import QuantumTask
from qloom.errors import InputError


@dataclass(frozen=True)
class Candidate:
    """A task that could run next: the head of a session, or one from outside."""

    task: str
    order: int  # when it became one
    project: str
    priority: int
    waited_s: float


@dataclass
class Usage:
    """QPU-seconds of each project, the older the lighter, divided by the project's weight.

    A project that comes back after a pause starts level with those that are busy: it neither pays for the past
    nor may it catch up on time that it did not want.
    """

    weights: dict[str, float] = field(default_factory=dict)
    half_life_s: float = 7 * 86400.0
    seconds: dict[str, float] = field(default_factory=dict)
    as_of_us: int = 0

    def charge(self, project: str, seconds: float, now_us: int) -> None:
        """Add to what a project has used."""
        self._decay(now_us)
        weighted = seconds / self.weights.get(project, 1.0)
        self.seconds[project] = self.seconds.get(project, 0.0) + weighted

    def begin(self, project: str, busy: list[str], now_us: int) -> None:
        """A project has something to do again."""
        self._decay(now_us)
        if others := [self.seconds.get(other, 0.0) for other in busy if other != project]:
            self.seconds[project] = max(self.seconds.get(project, 0.0), min(others))

    def as_dict(self) -> dict[str, Any]:
        """As the store keeps it."""
        return {"seconds": self.seconds, "as_of_us": self.as_of_us}

    def of(self, project: str) -> float:
        """Weighted seconds."""
        return self.seconds.get(project, 0.0)

    def _decay(self, now_us: int) -> None:
        factor = 0.5 ** ((now_us - self.as_of_us) / 1e6 / self.half_life_s)
        self.as_of_us = now_us
        for project in self.seconds:
            self.seconds[project] *= factor


Ordering = Callable[[Candidate, Usage], tuple[float, ...]]
AGEING_S = 600.0  # ten minutes of waiting weigh as much as one step of priority

POLICIES: dict[str, Ordering] = {
    "fifo": lambda candidate, usage: (candidate.order,),
    "fair": lambda candidate, usage: (usage.of(candidate.project), candidate.order),
    "priority": lambda candidate, usage: (-candidate.priority - candidate.waited_s / AGEING_S, candidate.order),
}
GROUPS: dict[str, Callable[[QuantumTask], Hashable]] = {  # of each group, the one that came first goes first
    "fifo": lambda task: None,
    "fair": lambda task: task.project,
    "priority": lambda task: task.priority,
}
CAN_PROMISE = ("fifo",)


def policy(name: str) -> Ordering:
    """The policy of that name."""
    try:
        return POLICIES[name]
    except KeyError:
        raise InputError(f"no policy is called {name!r}", hint=f"choose one of {', '.join(POLICIES)}") from None


def group(policy: str, task: QuantumTask) -> Hashable:
    """Tasks of one group keep the order they came in, so that only the first of it can be the next of all."""
    return GROUPS[policy](task)
