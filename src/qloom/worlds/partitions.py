"""The line for nodes and QPU shares: pure, first come first served per partition.

The nodes are one partition and each QPU is one. A request stands in the line of every partition it needs
something from, and is granted all of it at once or nothing: so nobody holds one thing while waiting in line
for another, and a job that waits for a QPU does not stop those who only want nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qloom.model import QpuHold
from qloom.ports import Lease, Request

NODES = "nodes"


@dataclass(frozen=True)
class Grant:
    """What a request is given: these nodes, and this many shares of its device."""

    request: Request
    nodes: tuple[str, ...]
    shares: int


@dataclass
class Partitions:
    """Free nodes, free shares, and who waits for them."""

    nodes: Sequence[str]
    shares: Mapping[str, int]  # device -> how many vQPUs it offers
    waiting: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._order = {node: place for place, node in enumerate(self.nodes)}
        self._free_nodes = list(self.nodes)
        self._free_shares = dict(self.shares)

    def enter(self, request: Request) -> None:
        """Stand in line."""
        self.waiting.append(request)

    def leave(self, request: Request) -> bool:
        """Leave the line; False if the request is not (or no longer) in it."""
        if request not in self.waiting:
            return False
        self.waiting.remove(request)
        return True

    def schedule(self) -> list[Grant]:
        """Grant what can be granted, in order; a request that cannot be blocks the partitions it wants."""
        if not self.waiting:
            return []
        grants: list[Grant] = []
        blocked: dict[str, bool] = {}
        still_waiting: list[Request] = []
        for request in self.waiting:
            wanted = self._wanted(request)
            if any(name in blocked for name in wanted) or not self._fits(request):
                blocked.update(dict.fromkeys(wanted, True))
                still_waiting.append(request)
            else:
                grants.append(self._take(request))
        self.waiting = still_waiting
        return grants

    def try_at_once(self, request: Request) -> Grant | None:
        """Grant a newcomer without a look at the rest, if nobody waits for the same partitions."""
        wanted = self._wanted(request)
        if any(name in wanted for other in self.waiting for name in self._wanted(other)) or not self._fits(request):
            return None
        return self._take(request)

    def give_back(self, nodes: Sequence[str], device: str | None = None, shares: int = 0) -> None:
        """Nodes and shares that are free again."""
        self._free_nodes.extend(nodes)
        self._free_nodes.sort(key=self._order.__getitem__)
        if device is not None:
            self._free_shares[device] += shares

    @property
    def free_nodes(self) -> int:
        """How many nodes nobody holds."""
        return len(self._free_nodes)

    def all_free(self) -> bool:
        """Whether nobody holds anything."""
        return len(self._free_nodes) == len(self.nodes) and self._free_shares == dict(self.shares)

    def shares_of(self, request: Request) -> int:
        """How many shares a request stands for: a whole device is all of them."""
        if request.device is None or request.qpu is QpuHold.TASK:
            return 0
        return self.shares[request.device] if request.qpu is QpuHold.WHOLE else 1

    def _wanted(self, request: Request) -> list[str]:
        wanted = [request.device] if request.device is not None and request.qpu is not QpuHold.TASK else []
        return wanted + [NODES] if request.least_nodes else wanted

    def _fits(self, request: Request) -> bool:
        shares = self.shares_of(request)
        enough_shares = request.device is None or self._free_shares[request.device] >= shares
        return len(self._free_nodes) >= request.least_nodes and enough_shares

    def _take(self, request: Request) -> Grant:
        count = min(request.most_nodes, len(self._free_nodes))
        nodes, self._free_nodes = tuple(self._free_nodes[:count]), self._free_nodes[count:]
        shares = self.shares_of(request)
        if request.device is not None:
            self._free_shares[request.device] -= shares
        return Grant(request, nodes, shares)


def lease_of(grant: Grant, engine_us: int | None = None) -> Lease:
    """A new lease for what was granted."""
    request = grant.request
    device = request.device if grant.shares else None
    return Lease(request.id, request.job, list(grant.nodes), device, grant.shares, engine_us)
