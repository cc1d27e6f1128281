"""Holds nothing between phases: each phase waits in line for what it needs. (QCE25, StreamFlow)

`pertask` is a workflow of single tasks: one job each, those of spare work behind everybody else in line.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from qloom.aio import TaskScope
from qloom.errors import NodeLost
from qloom.model import Need, QpuHold, Work
from qloom.ports import PATIENCE_S, Requirements
from qloom.strategies.base import Holding, Options, Strategy, results, spread


class Room:
    """Nodes that steps may ask for together; one that finds too few waits until another has ended."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._one_ended = asyncio.Event()

    @asynccontextmanager
    async def take(self, nodes: int) -> AsyncIterator[None]:
        """Wait for so many, and keep them for a step."""
        while nodes > self._nodes:
            await self._one_ended.wait()
        self._nodes -= nodes
        try:
            yield
        finally:
            self._nodes += nodes
            self._one_ended.set()
            self._one_ended = asyncio.Event()


@dataclass(frozen=True)
class WorkflowOptions(Options):
    """What each phase asks for."""

    phase_nodes: int = 1  # some workflow managers ask for all nodes, always
    patience_s: float = PATIENCE_S  # longest wait for nodes with a QPU that is not used
    per_task: bool = False  # each task is a step of its own
    spare: bool = False  # spare work is submitted too, in steps of its own, beside what the job may hold otherwise
    nice: bool = False  # these let all other requests go first


class Workflow(Strategy[WorkflowOptions]):
    """Each phase takes what it needs, but not less than `phase_nodes`, and gives it back."""

    usual_qpu_hold = QpuHold.WHOLE
    holds = Holding.PHASE
    chains = True
    options_type = WorkflowOptions

    def __init__(self, required: Requirements) -> None:
        super().__init__(required)
        self._steps = TaskScope(on_failure=lambda failure: None)  # a spare step may fail in silence
        self._spare_in_line: dict[asyncio.Task[Any], list[str]] = {}  # spare steps without nodes -> ids of work

    @property
    def patience_s(self) -> float:
        """As its option says."""
        return self.options.patience_s

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        """One allocation for the phase, or (`per_task`) one for each of its tasks."""
        for spare, ids in self._spare_in_line.items():
            if any(work.id in ids for work in tasks):
                spare.cancel()  # it did not begin in time
        room = Room(self.nodes)
        steps = await results([self._steps.spawn(self._step(part, room)) for part in self._parts(tasks)])
        return [result for step in steps for result in step]

    def _parts(self, tasks: Sequence[Work]) -> list[Sequence[Work]]:
        if self.options.per_task:
            return [[work] for work in tasks]
        return [tasks] if tasks else []

    def _need(self, tasks: Sequence[Work]) -> Need:
        return Need(nodes=max(min(self.nodes, self.options.phase_nodes), self.nodes_for(tasks)))

    async def _step(self, tasks: Sequence[Work], room: Room) -> list[Any]:
        """One allocation."""
        need = self._need(tasks)
        async with room.take(need.nodes), await self.allocate(need) as held:
            return await spread(tasks, held)

    @asynccontextmanager
    async def quantum(self) -> AsyncIterator[None]:
        """One hold of the QPU for the block, and no node."""
        if self.qpu_hold is QpuHold.TASK:
            yield
        else:
            async with await self.allocate(Need(qpu=self.qpu_hold)):
                yield

    async def speculate(self, tasks: Sequence[Work]) -> None:
        """No node is held that could run it; with `spare`, nodes are asked for."""
        if not self.options.spare:
            return await super().speculate(tasks)
        room = Room(self.nodes)
        for part in self._parts(tasks):
            step = self._steps.spawn(self._spare_step(part, room))
            self._spare_in_line[step] = [work.id for work in part]
            step.add_done_callback(lambda step: self._spare_in_line.pop(step, None))
        return None

    async def _spare_step(self, tasks: Sequence[Work], room: Room) -> None:
        own = asyncio.current_task()
        assert own is not None  # noqa: S101
        need = self._need(tasks)
        async with room.take(need.nodes):
            held = await self.cluster.allocate(need, spare=self.options.nice)
            assert held is not None  # noqa: S101  there was no time limit
            async with held:
                self.cluster.fill_idle_nodes(tasks)
                await asyncio.sleep(0)  # a phase that asked for one of them just before finds this step in line
                del self._spare_in_line[own]
                await held.wait_idle(0.0)

    async def end(self) -> None:
        """Give everything back, and spare work up that nobody asked for."""
        await self._steps.aclose()


@dataclass(frozen=True)
class PerTaskOptions(WorkflowOptions):
    """Those of a workflow, of single tasks and with spare work."""

    per_task: bool = True
    spare: bool = True
    nice: bool = True


class PerTask(Workflow):
    """A workflow whose steps are single tasks, which holds a share of the QPU and submits spare work too."""

    usual_qpu_hold = QpuHold.SHARE
    chains = False  # its jobs run side by side, those of spare work also between phases
    options_type = PerTaskOptions

    async def _step(self, tasks: Sequence[Work], room: Room) -> list[Any]:
        """If a node fails and none comes in its place, give back the nodes that are left and queue again, once.

        Only for a single task: of several (`per_task=0`) those that are done would run again.
        """
        try:
            return await super()._step(tasks, room)
        except NodeLost:
            if len(tasks) > 1:
                raise
            return await super()._step(tasks, room)
