"""A node is held only while a task runs on it, and asked for before it is needed. Spare work fills what is free.

Four mechanisms: a node for a task (`leases`), asking early (here, with what is `expected`),
spare work (`spare`), and a share of the QPU (`share`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from qloom.aio import TaskScope
from qloom.model import Need, QpuHold, Work
from qloom.ports import PATIENCE_S, Requirements
from qloom.strategies.base import Holding, Options, Strategy, part, results
from qloom.strategies.weaving.expected import FOREVER_S, Expected, PhaseOrder
from qloom.strategies.weaving.leases import Leases
from qloom.strategies.weaving.share import EarlyShare
from qloom.strategies.weaving.spare import SpareWork

IDLE = 0.1  # what comes early may idle until it is expected to be used, and then for this part of the time of its use
MOMENT_S = 0.01
POLL_S = 0.5


@dataclass(frozen=True)
class WeaveOptions(Options):
    """Its mechanisms, and how far it trusts predictions."""

    per_task: bool = True  # false: the nodes of a phase are held until all of it is done
    ask_early: bool = True  # false: nodes and QPU are asked for when there is work for them
    spare: bool = True  # false: no spare work is run
    patience_s: float = PATIENCE_S  # longest wait for nodes with a QPU that is not used
    linger_s: float = 0.05  # how long an idle node is kept, in case that the program has work at once
    crowded_s: float = 60.0  # where nodes take longer to come, and than tasks run, one is kept in quantum phases
    confidence: float = part(0.5)  # predictions below are not used
    skew: float = 1.0  # multiplies every prediction, to try what wrong ones cost


class Weave(Strategy[WeaveOptions]):
    """Holds a node only while a task runs on it, a share of the QPU only in a quantum phase, and looks ahead."""

    usual_qpu_hold = QpuHold.SHARE
    wants_forecast = True
    holds = Holding.PHASE
    options_type = WeaveOptions

    def __init__(self, required: Requirements) -> None:
        super().__init__(required)
        options = self.options
        self._tasks = TaskScope()
        self._expected = Expected(required.forecast, options.confidence, options.skew)
        self._order = PhaseOrder(self._expected)
        self._leases = Leases(
            self.cluster,
            self.nodes,
            self._expected,
            self._order,
            per_task=options.per_task,
            linger_s=options.linger_s,
            crowded_s=options.crowded_s,
        )
        self._spare = SpareWork(self.nodes, self._expected, self._order, self._leases)
        self._share = EarlyShare(lambda: self.allocate(Need(qpu=self.qpu_hold)))

    @property
    def patience_s(self) -> float:
        """As its option says."""
        return self.options.patience_s

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        """A node for each task, or for several short ones. Spare work, and then the QPU, come after them."""
        self._order.classical_begins(tasks)
        runs = self._leases.run(tasks)
        self._spare.begin_after(tasks)
        self._share.prepare(self._ask_for_share(tasks) if self._may_ask_for_share() else None)
        try:
            return await results(runs)
        except asyncio.CancelledError:
            if self._leases.failure is not None:
                raise self._leases.failure from None
            raise

    @asynccontextmanager
    async def quantum(self) -> AsyncIterator[None]:
        """A share of the QPU, and no node but for other work; those of the next phase are asked for in time."""
        early = self._tasks.spawn(self._ask_early())
        self._order.quantum_begins()
        try:
            with self._spare.in_quantum():
                if self.qpu_hold is QpuHold.TASK:
                    yield
                else:
                    async with await self._share.take():
                        yield
        finally:
            early.cancel()
            self._order.quantum_ends()

    async def speculate(self, tasks: Sequence[Work]) -> None:
        """Spare work begins at once, unless required work will come in a moment."""
        if self.options.spare:
            self._spare.offer(tasks)

    async def end(self) -> None:
        """Give everything back."""
        await asyncio.gather(*self._leases.end(), *self._share.end(), return_exceptions=True)

    async def _ask_early(self) -> None:
        """Ask for the nodes of the next phase so long before the quantum phase can end as they take to come."""
        pause_s = POLL_S
        while self.options.ask_early:
            left, coming = self._expected.quantum_left(), self._order.next_tasks(self.cluster.spare_waiting)
            if left is None or not coming:
                await asyncio.sleep(pause_s)
                pause_s *= 2
                continue
            longest_s, wait_s = max(task.seconds for task in coming), self._expected.node_wait_s()
            if wait_s <= longest_s:  # nodes may come at once this time: they shall not idle for long beside their use
                wait_s = min(wait_s, longest_s / 2)
            if left.value > wait_s:
                await asyncio.sleep(left.value - wait_s + MOMENT_S)
            else:
                reason = f"a quantum result is expected in {left.value:.1f} s (confidence {left.confidence:.2f})"
                self._leases.ask_early(coming, max(0.0, left.value) + IDLE * longest_s, reason)
                return

    def _may_ask_for_share(self) -> bool:
        is_share = self.qpu_hold is QpuHold.SHARE
        return is_share and self.options.ask_early and self._order.quantum_may_follow()

    async def _ask_for_share(self, tasks: Sequence[Work]) -> None:
        """So long before the phase can end as nodes take to come; given back if no quantum phase comes in time."""
        longest = self._expected.longest_first(tasks)[0]
        await self._leases.begun(longest)
        seconds = self._expected.task_s(longest)
        if seconds < FOREVER_S:
            idle_s = IDLE * seconds
            ahead_s = min(idle_s, self._expected.node_wait_s())
            await asyncio.sleep(seconds - ahead_s)
            if not self._order.in_quantum and not self.cluster.waiting:  # who waits for nodes keeps no QPU idle
                await self._share.keep(ahead_s + idle_s)
