"""All nodes for the whole job, as `Static`. From: Elephant paper, 'virtual QPUs'."""

from __future__ import annotations

from qloom.model import QpuHold
from qloom.strategies.static import Static


class Vqpu(Static):
    """All nodes and one of N shares of the QPU, for the whole job; the wait for a turn is bounded."""

    usual_qpu_hold = QpuHold.SHARE
