"""All nodes for the whole job, as `Static`. From: QCE25, 'baseline'."""

from __future__ import annotations

from qloom.model import QpuHold
from qloom.strategies.static import Static


class Offload(Static):
    """All nodes for the whole job; each quantum task waits in the QPU's queue."""

    usual_qpu_hold = QpuHold.TASK
