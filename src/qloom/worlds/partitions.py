"""The line for nodes and QPU shares: pure, first come first served per partition.

The nodes are one partition and each QPU is one. A request stands in the line of every partition it needs
something from, and is granted all of it at once or nothing: so nobody holds one thing while waiting in line
for another, and a job that waits for a QPU does not stop those who only want nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from qloom.model import QpuHold, plain_value
from qloom.world import Lease, Request

NODES = "nodes"
SPARE = "spare"  # not a partition: those who ask for spare work stand in a line of their own, after all others


@plain_value
class Grant:
    """What a request is given: these nodes, and this many shares of its device."""

    request: Request
    nodes: tuple[str, ...]
    shares: int


class Partitions:
    """Free nodes, free shares, and who waits for them.

    Requests that want something from the same partitions stand in one line, so a pass looks at the heads only.
    """

    def __init__(self, nodes: Sequence[str], shares: Mapping[str, int]) -> None:
        self.nodes = list(nodes)
        self.shares = dict(shares)  # device -> how many vQPUs it offers
        self._order = {node: place for place, node in enumerate(self.nodes)}
        self._free_nodes = list(self.nodes)
        self._free_shares = dict(self.shares)
        self._lines: dict[tuple[str, ...], dict[str, tuple[int, Request]]] = {}  # by what is wanted, then by id
        self._dependent: dict[str, tuple[int, Request]] = {}  # not yet eligible: they have a place, and block nobody
        self._arrivals = 0

    @property
    def waiting(self) -> list[Request]:
        """Who stands in line, in the order they came."""
        lines = [*self._lines.values(), self._dependent]
        return [request for _, request in sorted((entry for line in lines for entry in line.values()), key=_arrival)]

    def enter(self, request: Request) -> bool:
        """Stand in line, or keep a place in it until the request is eligible; whether it may be granted by a pass.

        It may not if it stands behind another one that wants the same and was not granted.
        """
        self._arrivals += 1
        line = self._lines.setdefault(self._wanted(request), {}) if request.eligible else self._dependent
        line[request.id] = (self._arrivals, request)
        return request.eligible and len(line) == 1

    def leave(self, request: Request) -> bool:
        """Leave the line; False if the request is not (or no longer) in it."""
        line = self._dependent if request.id in self._dependent else self._lines.get(self._wanted(request), {})
        return line.pop(request.id, None) is not None

    def schedule(self) -> list[Grant]:
        """Grant what can be granted, in order; a request that cannot be blocks the partitions it wants."""
        grants: list[Grant] = []
        blocked: set[str] = set()
        heads = [self._head(wanted) for wanted, line in self._lines.items() if line]
        heapq.heapify(heads)
        while heads:
            _, _, wanted, request = heapq.heappop(heads)
            if not blocked.isdisjoint(wanted) or not self._fits(request):
                blocked.update(wanted)
                request.waited_for = self._shortage(request)
                continue
            grants.append(self._take(request))
            line = self._lines[wanted]
            del line[request.id]
            if line:
                heapq.heappush(heads, self._head(wanted))
        return grants

    def _head(self, wanted: tuple[str, ...]) -> tuple[bool, int, tuple[str, ...], Request]:
        """Who is first in a line; the smallest of several came first, those who ask for spare work last."""
        place, request = next(iter(self._lines[wanted].values()))
        return request.spare, place, wanted, request

    def try_at_once(self, request: Request) -> Grant | None:
        """Grant a newcomer without a look at the rest, if nobody waits for the same partitions."""
        wanted = self._wanted(request)
        contended = any(line and any(name in wanted for name in names) for names, line in self._lines.items())
        return None if contended or not request.eligible or not self._fits(request) else self._take(request)

    def give_back(self, nodes: Sequence[str], device: str | None = None, shares: int = 0) -> None:
        """Nodes and shares that are free again."""
        self._free_nodes.extend(nodes)
        self._free_nodes.sort(key=self._order.__getitem__)
        if device is not None:
            self._free_shares[device] += shares
        if self._dependent:
            self._admit()

    def _admit(self) -> None:
        """Who has become eligible stands in line, in the place that it had."""
        for place, request in [entry for entry in self._dependent.values() if entry[1].eligible]:
            del self._dependent[request.id]
            wanted = self._wanted(request)
            line = {**self._lines.get(wanted, {}), request.id: (place, request)}
            self._lines[wanted] = dict(sorted(line.items(), key=lambda entry: entry[1][0]))

    @property
    def free_nodes(self) -> int:
        """How many nodes nobody holds."""
        return len(self._free_nodes)

    def all_free(self) -> bool:
        """Whether nobody holds anything."""
        return len(self._free_nodes) == len(self.nodes) and self._free_shares == self.shares

    def shares_of(self, request: Request) -> int:
        """How many shares a request stands for: a whole device is all of them."""
        if request.device is None or request.qpu is QpuHold.TASK:
            return 0
        return self.shares[request.device] if request.qpu is QpuHold.WHOLE else 1

    def nodes_are_short(self) -> bool:
        """Whether somebody waits for nodes, other than for spare work."""
        return any(line and NODES in names and SPARE not in names for names, line in self._lines.items())

    def _wanted(self, request: Request) -> tuple[str, ...]:
        devices = (request.device,) if request.device is not None and request.qpu is not QpuHold.TASK else ()
        names = (*devices, NODES) if request.least_nodes else devices
        return (*names, SPARE) if request.spare else names

    def _shortage(self, request: Request) -> str:
        """What keeps a request waiting: its device if that is short or others are before it there, else nodes."""
        if request.device is None:
            return NODES
        ahead = [names for names, line in self._lines.items() if line and request.id not in line]
        contended = any(request.device in names for names in ahead)
        short = self._free_shares[request.device] < self.shares_of(request)
        return request.device if short or contended else NODES

    def _fits(self, request: Request) -> bool:
        if len(self._free_nodes) < request.least_nodes:
            return False
        return request.device is None or self._free_shares[request.device] >= self.shares_of(request)

    def _take(self, request: Request) -> Grant:
        count = min(request.most_nodes, len(self._free_nodes))
        nodes, self._free_nodes = tuple(self._free_nodes[:count]), self._free_nodes[count:]
        shares = self.shares_of(request)
        if request.device is not None:
            self._free_shares[request.device] -= shares
        return Grant(request, nodes, shares)


def _arrival(entry: tuple[int, Request]) -> tuple[bool, int]:
    return entry[1].spare, entry[0]


def lease_of(grant: Grant, engine_us: int | None = None) -> Lease:
    """A new lease for what was granted."""
    request = grant.request
    device = request.device if grant.shares else None
    return Lease(request.id, request.job, list(grant.nodes), device, grant.shares, engine_us)
