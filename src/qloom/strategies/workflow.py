"""Holds nothing between phases: each phase waits in line for what it needs. (QCE25, StreamFlow)"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from qloom.model import Need, QpuHold, Work
from qloom.ports import Allocation, Requirements
from qloom.strategies.base import Strategy, spread


class Workflow(Strategy):
    """Each phase takes what it needs and gives it back."""

    usual_qpu_hold = QpuHold.WHOLE
    options: ClassVar[dict[str, float]] = {"patience_s": 5.0}

    def __init__(self, required: Requirements) -> None:
        super().__init__(required)
        self._block: Allocation | None = None

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        """One allocation for the phase. While a block keeps the QPU, the wait for nodes is bounded."""
        need = Need(nodes=self.nodes_for(tasks))
        if self._block is None:
            held = await self.allocate(need)
        else:
            held = await self.cluster.allocate(need, within_s=self.settings["patience_s"]) or await self._let_go(need)
        async with held:
            return await spread(tasks, held)

    async def _let_go(self, need: Need) -> Allocation:
        """Rather than hold the QPU while nodes are short, give it back: the rest of the block queues per task."""
        if self._block is not None:
            await self._block.release_qpu()
        return await self.allocate(need)

    @asynccontextmanager
    async def quantum(self) -> AsyncIterator[Allocation | None]:
        """One hold of the QPU for the block, and no node."""
        if self.qpu_hold is QpuHold.TASK:
            yield None
            return
        self._block = await self.allocate(Need(qpu=self.qpu_hold))
        try:
            yield self._block
        finally:
            block, self._block = self._block, None
            await block.release()
