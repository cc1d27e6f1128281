"""One sub-job per quantum block, chained; the QPU is released the moment its block ends. (HPE)"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from qloom.aio import TaskScope, finish
from qloom.model import Need, QpuHold, Work
from qloom.ports import Allocation, Requirements
from qloom.strategies.base import Holding, Options, Strategy, spread


@dataclass(frozen=True)
class SplitOptions(Options):
    """When the next sub-job is asked for."""

    lookahead: bool = True  # while the one before it runs


class Split(Strategy[SplitOptions]):
    """Sub-job 0 is classical; sub-job k starts with quantum block k, gives the QPU back and runs to the next.

    While one runs, the next stands in line behind it (`lookahead`); it is withdrawn if no block follows. What one
    sub-job knows is handed on through the journal, so the chain needs no checkpoint code.
    """

    usual_qpu_hold = QpuHold.WHOLE
    holds = Holding.ITERATION
    chains = True
    options_type = SplitOptions

    def __init__(self, required: Requirements) -> None:
        super().__init__(required)
        self.subjob: Allocation | None = None
        self._block = Need(nodes=self.nodes, qpu=self.qpu_hold)
        self._next: asyncio.Task[Allocation | None] | None = None  # in line, behind the current one
        self._asking = TaskScope()
        self._chaining = asyncio.Lock()

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        """Run in the current sub-job."""
        async with self._chaining:
            if self.subjob is None:
                self.subjob = await self.allocate(Need(nodes=self.nodes))
                self._look_ahead(self.subjob)
            running = spread(tasks, self.subjob)  # taken on: the sub-job ends only after it
        return await running

    @asynccontextmanager
    async def quantum(self) -> AsyncIterator[None]:
        """End the sub-job, begin the next one with its QPU, and give that back when the block ends."""
        async with self._chaining:
            try:
                await self._end_subjob()
                self.subjob = subjob = await self._begin_next()
            except BaseException:
                await self._withdraw_next()
                raise
            self._look_ahead(subjob)
        try:
            yield
        finally:
            await subjob.release_qpu()

    async def end(self) -> None:
        """Withdraw the sub-job that waits, then end the current one once the work that it took on is done."""
        await self._withdraw_next()
        await self._end_subjob()

    def _look_ahead(self, subjob: Allocation) -> None:
        if self.options.lookahead:
            self._next = self._asking.start(self.cluster.allocate(self._block, after=subjob))

    async def _begin_next(self) -> Allocation:
        """The sub-job that stands in line, or a new one: what could not be asked for ahead of time may be by now."""
        if self._next is None or _has_failed(self._next):
            granted = await self.allocate(self._block)
        else:
            granted = await self._next  # type: ignore[assignment]  # without a time limit it is granted or cancelled
        self._next = None
        return granted

    async def _withdraw_next(self) -> None:
        """Before the current sub-job ends, so that nothing is granted in vain."""
        if self._next is not None:
            await finish(self._next, cancel=True)
            if not _has_failed(self._next) and (granted := self._next.result()) is not None:
                await granted.release()
            self._next = None

    async def _end_subjob(self) -> None:
        if self.subjob is not None:
            subjob, self.subjob = self.subjob, None
            await subjob.release()


def _has_failed(asked: asyncio.Task[Any]) -> bool:
    return asked.done() and (asked.cancelled() or asked.exception() is not None)
