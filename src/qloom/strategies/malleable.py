"""Grows before a classical phase, keeps a few nodes during a quantum one. (QCE25, DMR)"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from qloom.errors import InputError
from qloom.model import Need, QpuHold, Work
from qloom.ports import PATIENCE_S, Allocation, Requirements
from qloom.strategies.base import Options, Strategy, spread


@dataclass(frozen=True)
class MalleableOptions(Options):
    """How it grows and shrinks."""

    min_nodes: int = 1
    patience_s: float = PATIENCE_S
    renew_patience: bool = False  # a grant of some of the missing nodes starts the patience anew, as in QCE25


class Malleable(Strategy[MalleableOptions]):
    """Starts at `min_nodes`, waits at most `patience_s` to grow and goes on with what it gets."""

    usual_qpu_hold = QpuHold.TASK
    resizes = True
    options_type = MalleableOptions

    def __init__(self, required: Requirements) -> None:
        super().__init__(required)
        self.held: Allocation | None = None
        self._quantum_is_out = False
        self._reshaping = asyncio.Lock()

    @classmethod
    def read_options(cls, given: Mapping[str, float], nodes: int) -> MalleableOptions:
        """A job cannot keep more nodes than it may hold."""
        options = super().read_options(given, nodes)
        if not 1 <= options.min_nodes <= nodes:
            hint = f"choose a whole number from 1 to {nodes}, the nodes of the job"
            raise InputError(f"min_nodes is {options.min_nodes}", hint=hint)
        return options

    @classmethod
    def throughout(cls, nodes: int, qpu_hold: QpuHold, options: MalleableOptions) -> Need:
        """The nodes that it never gives back, and its hold of the QPU."""
        return Need(nodes=options.min_nodes, qpu=qpu_hold)

    @property
    def patience_s(self) -> float:
        """As long as it waits to grow."""
        return self.options.patience_s

    async def begin(self) -> None:
        """Start small: the queue is shorter for few nodes."""
        self.held = await self.allocate(self.throughout(self.nodes, self.qpu_hold, self.options))

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        """Grow, run, and give back what was only needed here if a quantum result is awaited meanwhile."""
        async with self._reshaping:
            held = await self._grow(tasks)
            running = spread(tasks, held)
        try:
            return await running
        finally:
            if self._quantum_is_out:
                await self._shrink()

    @asynccontextmanager
    async def quantum(self) -> AsyncIterator[None]:
        """Keep `min_nodes` while the result is awaited, and what overlapping work uses."""
        self._quantum_is_out = True
        try:
            if not self._reshaping.locked():  # else a phase grows now, and shrinks when it is done
                await self._shrink()
            yield
        finally:
            self._quantum_is_out = False

    async def end(self) -> None:
        """Give everything back."""
        if self.held is not None:
            await self.held.release()

    async def _grow(self, tasks: Sequence[Work]) -> Allocation:
        assert self.held is not None  # noqa: S101  begin came first
        wanted = min(self.nodes, self.held.busy_nodes + self.nodes_for(tasks))
        least = max(work.task.nodes for work in tasks)
        if any(work.task.ranks and work.task.nodes > 1 for work in tasks):
            # Ranks cannot span two grants: take all nodes in one.
            if self.held.has_grown or len(self.held.nodes) < least:
                await self._queue_again(wanted)
            return self.held
        await self.held.grow(wanted, self.patience_s, for_each_grant=self.options.renew_patience)
        if len(self.held.nodes) < least:
            # A task that needs more than was granted cannot go on with less.
            await self._queue_again(least)
        return self.held

    async def _queue_again(self, nodes: int) -> None:
        """Waiting without a bound while holding nodes could block others for ever: so hold nothing."""
        assert self.held is not None  # noqa: S101  begin came first
        await self.held.release()
        self.held = await self.allocate(Need(nodes=nodes, qpu=self.qpu_hold))

    async def _shrink(self) -> None:
        async with self._reshaping:
            if self.held is not None:
                await self.held.shrink(self.options.min_nodes)
