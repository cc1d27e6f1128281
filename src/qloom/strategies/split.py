"""One sub-job per quantum block, chained; the QPU is released the moment its block ends. (HPE)"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from qloom.model import Need, QpuHold, Work
from qloom.ports import Allocation, Requirements
from qloom.strategies.base import Strategy, spread


class Split(Strategy):
    """Sub-job 0 is classical; sub-job k starts with quantum block k, gives the QPU back and runs to the next.

    What a sub-job knows is handed on through the journal, so the chain needs no checkpoint code.
    """

    usual_qpu_hold = QpuHold.WHOLE

    def __init__(self, required: Requirements) -> None:
        super().__init__(required)
        self.subjob: Allocation | None = None
        self._chaining = asyncio.Lock()

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        """Run in the current sub-job."""
        async with self._chaining:
            if self.subjob is None:
                self.subjob = await self.allocate(Need(nodes=self.nodes))
            running = spread(tasks, self.subjob)  # taken on: the sub-job ends only after it
        return await running

    @asynccontextmanager
    async def quantum(self) -> AsyncIterator[None]:
        """End the sub-job, begin the next one with its QPU, and give that back when the block ends."""
        async with self._chaining:
            await self.end()
            self.subjob = await self.allocate(Need(nodes=self.nodes, qpu=self.qpu_hold))
            subjob = self.subjob
        try:
            yield
        finally:
            await subjob.release_qpu()

    async def end(self) -> None:
        """End the current sub-job, once the work that it took on is done."""
        if self.subjob is not None:
            subjob, self.subjob = self.subjob, None
            await subjob.release()
