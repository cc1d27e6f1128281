"""The rule that keeps jobs from blocking each other for ever: who waits in line gives back what it does not use.

Required work that has waited for `patience_s` while its job stands in line makes the job give back

- its hold of a QPU, if no quantum task of the job has been out for as long;
- if it stands in line for nodes: every allocation on which nothing has run for as long.

So a job that waits for nodes is left with nodes that work and no others, and one that waits for a QPU with no other
QPU: no circle of jobs can wait for each other. A quantum block whose QPU was given back goes on task by task. An
allocation whose nodes were given back asks for them again when it is given work. Strategies need not know of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from qloom.model import QuantumWork, Work
from qloom.ports import PATIENCE_S
from qloom.world import Clock, Request


class Returnable(Protocol):
    """An allocation of the job."""

    @property
    def nodes_unused_since_us(self) -> int | None:
        """Since when nothing has run on its nodes; None if something does, or there are none to give back."""

    @property
    def qpu_unused_since_us(self) -> int | None:
        """Since when its QPU has been of no use; None if it is of use, or there is none to give back."""

    def give_nodes_back(self) -> None:
        """Begin to give all of it back; from now on it is nothing that could be given back."""

    def give_qpu_back(self) -> None:
        """Begin to give its QPU back."""


class UnusedRule:
    """Keeps the rule for one job; it is informed of what the job wants, asks for and no longer uses."""

    def __init__(self, clock: Clock, held: Callable[[], Sequence[Returnable]]) -> None:
        self.patience_s = PATIENCE_S
        self._clock = clock
        self._held = held
        self._wanted: dict[str, None] = {}  # work that the program waits for
        self._wanted_since_us: dict[str, int] = {}  # those of it that nothing runs
        self._in_line: dict[str, Request] = {}
        self._timer: tuple[int, Callable[[], None]] | None = None  # when it is due, and how to cancel it

    def want(self, works: Sequence[Work | QuantumWork]) -> None:
        """The program waits for this work from now on."""
        now_us = self._clock.now_us()
        for work in works:
            self._wanted[work.id] = None
            self._wanted_since_us[work.id] = now_us
        self.look()

    def no_longer_want(self, works: Sequence[Work | QuantumWork]) -> None:
        """The program waits for this work no more."""
        for work in works:
            self._wanted.pop(work.id, None)
            self._wanted_since_us.pop(work.id, None)

    def waits(self, work: str) -> None:
        """Nothing runs this work, or nothing does any more."""
        if work in self._wanted:
            self._wanted_since_us[work] = self._clock.now_us()
            self.look()

    def runs(self, work: str) -> None:
        """Note that work has found nodes or a QPU."""
        self._wanted_since_us.pop(work, None)

    def enter_line(self, request: Request) -> None:
        """A request stands in line; spare work is nothing that the job waits for."""
        if not request.spare:
            self._in_line[request.id] = request
            self.look()

    def leave_line(self, request: Request) -> None:
        """A request was granted or withdrawn."""
        self._in_line.pop(request.id, None)

    def look(self) -> None:
        """Something has changed: see when the job will have to give something back."""
        if not self._in_line or not self._wanted_since_us:
            return
        due_us = min((due_us for due_us, _ in self._unused()), default=None)
        if due_us is None or (self._timer is not None and self._timer[0] <= due_us):
            return
        if self._timer is not None:
            self._timer[1]()
        left_s = max(0, due_us - self._clock.now_us()) / 1e6
        self._timer = (due_us, self._clock.deadline(left_s, self._time_is_up))

    def _unused(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """When the job will have to give something back, and how it does."""
        held = self._held()
        if not self._in_line or not self._wanted_since_us or not held:
            return
        patience_us = round(self.patience_s * 1e6)
        oldest_us = min(self._wanted_since_us.values())
        waits_for_nodes = any(request.least_nodes for request in self._in_line.values())
        for allocation in held:
            if (since_us := allocation.qpu_unused_since_us) is not None:
                yield max(oldest_us, since_us) + patience_us, allocation.give_qpu_back
            if waits_for_nodes and (since_us := allocation.nodes_unused_since_us) is not None:
                yield max(oldest_us, since_us) + patience_us, allocation.give_nodes_back

    def _time_is_up(self) -> None:
        self._timer = None
        now_us = self._clock.now_us()
        for due_us, give_back in list(self._unused()):
            if due_us <= now_us:
                give_back()
        self.look()
