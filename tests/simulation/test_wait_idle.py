"""`Allocation.wait_idle` counts from the end of the last work, whenever it was called."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest

import qloom
from qloom.journal.events import QuantumQueued
from qloom.model import Need
from qloom.payloads.adapt import delay
from qloom.strategies import STRATEGIES
from qloom.strategies.base import Strategy, spread
from tests.simulation.harness import compute

IDLE_S = 20.0


class QuantumWhenIdle(Strategy):
    """Keeps a node, and lets a quantum phase begin only when the node has idled for a while."""

    async def begin(self) -> None:
        self.held = await self.allocate(Need(nodes=1))

    async def classical(self, tasks: Any) -> list[Any]:
        return await spread(tasks, self.held)

    @asynccontextmanager
    async def quantum(self) -> Any:
        await self.held.wait_idle(IDLE_S)
        yield

    async def end(self) -> None:
        await self.held.release()


async def program(job: Any, works: Any = ()) -> None:
    """A quantum call at 3 s, and tasks that begin and end at the given times."""
    await job.classical(compute(1.0))
    await asyncio.sleep(2.0)
    answer = job.quantum(delay(0.0))
    now_s = 3.0
    for begin_s, end_s in works:
        await asyncio.sleep(begin_s - now_s)
        await job.classical(compute(end_s - begin_s, begin_s))
        now_s = end_s
    await answer


@pytest.mark.parametrize(
    ("works", "queued_s"), [((), 23), (((5, 11),), 31), (((5, 11), (12, 13)), 33), (((3, 40),), 60)]
)
def test_it_returns_when_the_last_work_has_been_over_for_so_long(monkeypatch, works, queued_s):
    monkeypatch.setitem(STRATEGIES, "quantum-when-idle", QuantumWhenIdle)
    outcome = qloom.run(
        program, strategy="quantum-when-idle", world="virtual", parameters={"works": works}, in_memory=True
    )
    (queued,) = [event for event in outcome.events if isinstance(event, QuantumQueued)]
    assert queued.at_us == queued_s * 1_000_000
