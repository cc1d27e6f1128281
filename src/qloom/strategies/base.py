"""What strategies share: how a phase is spread over nodes, and the verbs that most of them leave alone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from qloom.errors import InputError
from qloom.model import Need, QpuHold, Work
from qloom.ports import PATIENCE_S, Allocation, Cluster, Requirements


class Strategy:
    """Decides which resources a job holds, and when: begin, classical, quantum, speculate, end."""

    usual_qpu_hold: ClassVar[QpuHold] = QpuHold.TASK
    options: ClassVar[dict[str, float]] = {}
    up_to_one: ClassVar[tuple[str, ...]] = ()  # options that are switches or parts
    learns: ClassVar[bool] = False  # whether it wants a forecast
    keeps: ClassVar[str] = "job"  # or "iteration", "phase": how long it means to keep what it asks for
    resizes: ClassVar[bool] = False  # whether a scheduler may ask it to shrink
    chains: ClassVar[bool] = False  # whether it holds nothing between phases, so that any job can do the next one

    def __init__(self, required: Requirements) -> None:
        unknown = [name for name in required.options if name not in self.options]
        if unknown:
            raise InputError(
                f"this strategy has no option {unknown[0]!r}", hint=f"it has: {', '.join(self.options) or 'none'}"
            )
        for name, value in required.options.items():
            if not 0 <= value < float("inf"):
                raise InputError(f"option {name} must be a finite number of at least 0, not {value}")
            if name in self.up_to_one and value > 1:
                raise InputError(f"option {name} must be from 0 to 1, not {value:g}")
        self.cluster: Cluster = required.cluster
        self.nodes = required.nodes
        self.qpu_hold = required.qpu_hold or self.usual_qpu_hold
        self.settings = {**self.options, **required.options}
        self.patience_s = self.settings.get("patience_s", PATIENCE_S)  # for which it keeps what it does not use

    async def begin(self) -> None:
        """Called before the first phase that has to run."""

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        """Run the tasks of one classical phase."""
        raise TypeError(f"{type(self).__name__} does not say how to run a classical phase")

    def quantum(self) -> AbstractAsyncContextManager[None]:
        """A quantum block: what is held while it is open is used by its tasks. Never nested."""
        raise TypeError(f"{type(self).__name__} does not say how to hold a QPU")

    async def speculate(self, tasks: Sequence[Work]) -> None:
        """Spare work runs on nodes that are held anyway."""
        self.cluster.fill_idle_nodes(tasks)

    async def end(self) -> None:
        """Give everything back."""

    async def allocate(self, need: Need) -> Allocation:
        """Wait in line, however long it takes. Only for a job that holds nothing."""
        granted = await self.cluster.allocate(need)
        assert granted is not None, "an allocation without a time limit is granted or cancelled"  # noqa: S101
        return granted

    def nodes_for(self, tasks: Sequence[Work]) -> int:
        """As many nodes as the tasks can use at once, and no more than the job may hold."""
        return min(self.nodes, sum(work.task.nodes for work in tasks))


def spread(tasks: Sequence[Work], held: Allocation) -> Coroutine[Any, Any, list[Any]]:
    """Put tasks on the nodes of an allocation, longest expected first; await the results in the order of the tasks.

    The allocation has taken the work on when this returns. One failure ends the phase.
    """
    longest_first = sorted(tasks, key=lambda work: -(work.task.expected_s or 0.0))
    runs = {work.id: held.run(work) for work in longest_first}
    return results([runs[work.id] for work in tasks])


async def results(runs: list[asyncio.Future[Any]]) -> list[Any]:
    """Wait for all; one failure ends the others."""
    try:
        return await asyncio.gather(*runs)
    finally:
        for run in runs:
            run.cancel()
