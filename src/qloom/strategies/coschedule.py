"""All nodes for the whole job, as `Static`. From: Elephant paper, listing 1; HPE, figure 2a."""

from __future__ import annotations

from qloom.model import QpuHold
from qloom.strategies.static import Static


class Coschedule(Static):
    """All nodes and the whole QPU, for the whole job"""

    usual_qpu_hold = QpuHold.WHOLE
