"""What the allocation that a driver lives in can lend, and what is left to ask for. Pure bookkeeping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from qloom.model import QpuHold
from qloom.world import Lease, Request


@dataclass(eq=False)
class Loan:
    """What an allocation has of the driver's, and what the world has granted beside it."""

    nodes: list[str] = field(default_factory=list)
    has_qpu: bool = False
    granted: Lease | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was lent."""
        return not self.nodes and not self.has_qpu

    def rest(self, request: Request) -> Request | None:
        """What is left to ask for; None if all of it was lent."""
        nodes = max(0, request.least_nodes - len(self.nodes))
        needs_qpu = wants_qpu(request) and not self.has_qpu
        if not nodes and not needs_qpu:
            return None
        if self.is_empty:
            return request
        rest = replace(request, least_nodes=nodes, most_nodes=nodes)
        return rest if needs_qpu else replace(rest, qpu=QpuHold.TASK, device=None)


class Lender:
    """The driver's own allocation; `hold` is how it holds its QPU, if it has one."""

    def __init__(self, own: Lease, hold: QpuHold) -> None:
        self.own = own
        self.idle = list(own.nodes)
        self._hold = hold
        self._qpu_is_idle = own.device is not None
        self._start_us = own.engine_us  # what the first allocation has of it, it has had since then

    def lend(self, request: Request) -> Loan:
        """Set aside what is idle and asked for."""
        loan = Loan(self.lend_nodes(request.most_nodes), self._qpu_is_idle and self._has_qpu_for(request))
        self._qpu_is_idle &= not loan.has_qpu
        return loan

    def lend_nodes(self, most: int) -> list[str]:
        """Set idle nodes aside."""
        nodes, self.idle = self.idle[:most], self.idle[most:]
        return nodes

    def lend_more(self, lease: Lease, loan: Loan, most: int) -> list[str]:
        """Add idle nodes to what an allocation has; returns them."""
        nodes = self.lend_nodes(most)
        if nodes:
            loan.nodes += nodes
            lease.nodes += nodes
            lease.engine_us, lease.engine_id = None, self.own.engine_id
        return nodes

    def read_back(self, lease: Lease, loan: Loan) -> None:
        """Take over which nodes are still held, after the world has changed that."""
        loan.nodes = [node for node in loan.nodes if node in self.own.nodes]
        lease.nodes = [*loan.nodes, *(loan.granted.nodes if loan.granted else ())]

    def set_idle_aside(self) -> list[str]:
        """Set all idle nodes aside but for the one that the driver is on."""
        nodes = [node for node in self.own.nodes[1:] if node in self.idle]
        self.idle = [node for node in self.idle if node not in nodes]
        return nodes

    def take_back(self, nodes: Sequence[str], *, has_qpu: bool = False) -> None:
        """What was lent and is still held is idle again."""
        self.idle = [node for node in self.own.nodes if node in self.idle or node in nodes]
        self._qpu_is_idle |= has_qpu

    def covers(self, request: Request, lent: Loan | None = None) -> bool:
        """Whether what is idle, with what was lent for it already, is all that a request asks for."""
        lent = lent or Loan()
        has_qpu = lent.has_qpu or (self._qpu_is_idle and self._has_qpu_for(request))
        return len(self.idle) + len(lent.nodes) >= request.least_nodes and (has_qpu or not wants_qpu(request))

    def _has_qpu_for(self, request: Request) -> bool:
        return wants_qpu(request) and request.qpu is self._hold and request.device == self.own.device

    def lease(self, request: Request, loan: Loan) -> Lease:
        """One allocation, of what was lent and what was granted."""
        granted, own = loan.granted, self.own
        start_us, self._start_us = self._start_us, None
        if granted is None:
            lease = Lease(request.id, request.job, list(loan.nodes), engine_us=start_us, engine_id=own.engine_id)
        else:
            lease = replace(granted, nodes=[*loan.nodes, *granted.nodes])
        if loan.has_qpu:
            lease.device, lease.shares, lease.engine_id = own.device, own.shares, own.engine_id
        return lease


def wants_qpu(request: Request) -> bool:
    """Whether a QPU is to be held, and not only used task by task."""
    return request.device is not None and request.qpu is not QpuHold.TASK


def in_words(request: Request) -> str:
    """What is asked for: `2 nodes and QPU helmi`."""
    nodes = request.least_nodes
    things = [f"{nodes} {'node' if nodes == 1 else 'nodes'}"] if nodes else []
    return " and ".join([*things, *([f"QPU {request.device}"] if wants_qpu(request) else [])])
