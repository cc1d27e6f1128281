"""All nodes for the whole job: what most hybrid jobs do today. The ways to hold the QPU make three strategies.

`offload` is the 'baseline' of QCE25, `coschedule` listing 1 of the Elephant paper (and HPE, figure 2a), `vqpu` the
'virtual QPUs' of the Elephant paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from qloom.model import Need, QpuHold, Work
from qloom.ports import Allocation
from qloom.strategies.base import Options, Strategy, spread


class Static(Strategy[Options]):
    """Holds every node, and its kind of hold on the QPU, from the first phase to the end."""

    held: Allocation | None = None

    @classmethod
    def throughout(cls, nodes: int, qpu_hold: QpuHold, options: Options) -> Need:
        """Everything."""
        return Need(nodes=nodes, qpu=qpu_hold)

    async def begin(self) -> None:
        """Wait for everything at once."""
        self.held = await self.allocate(self.throughout(self.nodes, self.qpu_hold, self.options))

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        """Run on the nodes that are there."""
        assert self.held is not None  # noqa: S101  begin came first
        return await spread(tasks, self.held)

    def quantum(self) -> AbstractAsyncContextManager[None]:
        """The nodes wait meanwhile."""
        return nullcontext()

    async def end(self) -> None:
        """Give everything back."""
        if self.held is not None:
            await self.held.release()


class Offload(Static):
    """All nodes for the whole job; each quantum task waits in the QPU's queue."""

    usual_qpu_hold = QpuHold.TASK


class Coschedule(Static):
    """All nodes and the whole QPU, for the whole job"""

    usual_qpu_hold = QpuHold.WHOLE


class Vqpu(Static):
    """All nodes and one of N shares of the QPU, for the whole job; the wait for a turn is bounded."""

    usual_qpu_hold = QpuHold.SHARE
