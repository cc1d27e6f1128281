"""Holds nothing between phases: each phase waits in line for what it needs. (QCE25, StreamFlow)"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from qloom.model import Need, QpuHold, Work
from qloom.strategies.base import Strategy, results, spread


class Workflow(Strategy):
    """Each phase takes what it needs, but not less than `phase_nodes`, and gives it back."""

    usual_qpu_hold = QpuHold.WHOLE
    options: ClassVar[dict[str, float]] = {"phase_nodes": 1, "patience_s": 5.0, "per_task": 0}

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        """One allocation for the phase, or (`per_task`) one for each of its tasks."""
        if not self.settings["per_task"]:
            return await self._step(tasks)
        steps = await results([asyncio.ensure_future(self._step([work])) for work in tasks])
        return [result for step in steps for result in step]

    async def _step(self, tasks: Sequence[Work]) -> list[Any]:
        """One allocation. A block that keeps the QPU waits for nodes only so long."""
        at_least = min(self.nodes, int(self.settings["phase_nodes"]))  # some workflow managers ask for all, always
        need = Need(nodes=max(at_least, self.nodes_for(tasks)))
        patience_s = self.settings["patience_s"] if self.cluster.keeps_qpu else None
        held = await self.cluster.allocate(need, within_s=patience_s)
        if held is None:
            await self.cluster.let_go_of_qpu()
            held = await self.allocate(need)
        async with held:
            return await spread(tasks, held)

    @asynccontextmanager
    async def quantum(self) -> AsyncIterator[None]:
        """One hold of the QPU for the block, and no node."""
        if self.qpu_hold is QpuHold.TASK:
            yield
        else:
            async with await self.allocate(Need(qpu=self.qpu_hold)):
                yield
