"""Strategies as users might write them from the verbs alone, with no thought of others who wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from qloom.model import Need, QpuHold, Work
from qloom.ports import Allocation, Requirements
from qloom.strategies.base import Strategy, results, spread


class Pause(Strategy):
    """The example of docs/architecture.md: all nodes, and nothing while a quantum result is awaited."""

    def __init__(self, required: Requirements) -> None:
        super().__init__(required)
        self.held: Allocation | None = None
        self._asking = asyncio.Lock()

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        async with self._asking:
            if self.held is None:
                self.held = await self.allocate(Need(nodes=self.nodes))
            running = spread(tasks, self.held)
        return await running

    @asynccontextmanager
    async def quantum(self) -> AsyncIterator[None]:
        await self.end()
        yield

    async def end(self) -> None:
        if self.held is not None:
            held, self.held = self.held, None
            await held.release()


class Linger(Strategy):
    """Nodes of its own for each phase, kept until nothing has run on them for a while."""

    idle_s = 30.0

    def __init__(self, required: Requirements) -> None:
        super().__init__(required)
        self._leaving: list[asyncio.Task[None]] = []

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        held = await self.allocate(Need(nodes=self.nodes_for(tasks)))
        running = spread(tasks, held)
        self._leaving.append(asyncio.ensure_future(self._leave(held)))
        return await running

    async def _leave(self, held: Allocation) -> None:
        async with held:
            await held.wait_idle(self.idle_s)

    @asynccontextmanager
    async def quantum(self) -> AsyncIterator[None]:
        """The hold of the QPU, while nodes may be held."""
        if self.qpu_hold is QpuHold.TASK:
            yield
        else:
            async with await self.allocate(Need(qpu=self.qpu_hold)):
                yield

    async def end(self) -> None:
        for leaving in self._leaving:
            leaving.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)


class Hoard(Strategy):
    """More nodes for each phase, and its hold of the QPU, all kept to the end."""

    def __init__(self, required: Requirements) -> None:
        super().__init__(required)
        self._held: list[Allocation] = []

    async def begin(self) -> None:
        if self.qpu_hold is not QpuHold.TASK:
            self._held.append(await self.allocate(Need(qpu=self.qpu_hold)))

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        held = await self.allocate(Need(nodes=self.nodes_for(tasks)))
        self._held.append(held)
        return await spread(tasks, held)

    @asynccontextmanager
    async def quantum(self) -> AsyncIterator[None]:
        yield

    async def end(self) -> None:
        for held in self._held:
            await held.release()


class OneByOne(Strategy):
    """All nodes, asked for one after the other, each kept; narrow tasks take turns on them, wide ones have others."""

    def __init__(self, required: Requirements) -> None:
        super().__init__(required)
        self._held: list[Allocation] = []

    async def begin(self) -> None:
        for _ in range(self.nodes):
            self._held.append(await self.allocate(Need(nodes=1)))

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        return await results([self._run(number, work) for number, work in enumerate(tasks)])

    def _run(self, number: int, work: Work) -> asyncio.Future[Any]:
        if work.task.nodes == 1:
            return self._held[number % self.nodes].run(work)
        return asyncio.ensure_future(self._run_wide(work))

    async def _run_wide(self, work: Work) -> Any:
        async with await self.allocate(Need(nodes=work.task.nodes)) as held:
            return await held.run(work)

    @asynccontextmanager
    async def quantum(self) -> AsyncIterator[None]:
        yield

    async def end(self) -> None:
        for held in self._held:
            await held.release()


class CommonLine(Hoard):
    """The same with work for whichever of its allocations is idle."""

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        if not any(len(held.nodes) >= max(work.task.nodes for work in tasks) for held in self._held):
            self._held.append(await self.allocate(Need(nodes=self.nodes)))
        return await results([self.cluster.run(work) for work in tasks])


OWN: dict[str, type[Strategy]] = {
    "pause": Pause,
    "linger": Linger,
    "hoard": Hoard,
    "onebyone": OneByOne,
    "commonline": CommonLine,
}
