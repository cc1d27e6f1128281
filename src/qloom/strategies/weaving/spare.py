"""Spare work: when it is begun, and for how many nodes it is worth asking."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from qloom.aio import TaskScope
from qloom.model import Work
from qloom.strategies.weaving.expected import FOREVER_S, Expected, PhaseOrder
from qloom.strategies.weaving.leases import Leases

BRIEF = 0.1  # a quantum phase is, that takes less than this part of the spare work
FULL = 1.1  # spare work shares a node if that takes only so much longer


class SpareWork:
    """Begins at once, or lets the required work go first that comes after a brief quantum phase."""

    def __init__(self, nodes: int, expected: Expected, order: PhaseOrder, leases: Leases) -> None:
        self._nodes = nodes
        self._expected = expected
        self._order = order
        self._leases = leases
        self._tasks = TaskScope()
        self._offered: list[Work] = []  # and not begun: it lets the next phase go first
        self._brief_s = 0.0
        self._was_brief: bool | None = None  # the last quantum phase, or False late in this one

    def offer(self, tasks: Sequence[Work]) -> None:
        """Work that may be of use later."""
        longest_s = max(self._expected.task_s(work) for work in tasks)
        self._brief_s = BRIEF * longest_s if longest_s < FOREVER_S else 0.0
        self._offered = list(tasks)
        if self._was_brief is False:
            self._begin()

    @contextmanager
    def in_quantum(self) -> Iterator[None]:
        """A quantum phase: late in it, all that was offered begins."""
        late = self._tasks.spawn(self._begin_late())
        try:
            yield
        finally:
            if not late.done():
                self._was_brief = True
            late.cancel()

    async def _begin_late(self) -> None:
        await asyncio.sleep(self._brief_s)
        self._was_brief = False  # what is offered from now on begins at once
        self._begin()

    def begin_after(self, required: Sequence[Work]) -> None:
        """A classical phase has gone first; what it asked for itself is no longer spare."""
        ids = [work.id for work in required]
        self._offered = [work for work in self._offered if work.id not in ids]
        self._begin()

    def _begin(self) -> None:
        """It runs on nodes that are held or free, as long as it proves useful and required work has room."""
        tasks, self._offered = self._offered, []
        if not self._expected.spare_is_useful():
            self._leases.stop_spare()
            return
        if not tasks:
            return
        most = self._nodes - max(1, len(self._order.next_tasks(tasks)))
        if most < 1:
            return
        longest_s = max(self._expected.task_s(work) for work in tasks)
        filled = self._expected.nodes_filled(tasks, FULL * max(self._expected.spare_ahead_s(), longest_s))
        self._leases.run_spare(self._expected.longest_first(tasks), min(most, filled), most)
