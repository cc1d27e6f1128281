"""One job per task: each waits in line for its own nodes, those of spare work behind everybody else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qloom.errors import NodeLost
from qloom.model import QpuHold, Work
from qloom.strategies.workflow import Room, Workflow, WorkflowOptions


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
