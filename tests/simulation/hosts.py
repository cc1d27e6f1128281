"""Where drivers live in virtual time: on a login node, in a job of their own, beside it, or in a chain of jobs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from qloom.model import QpuHold
from qloom.runs.runner import Plan
from qloom.runs.submit import held_throughout
from qloom.world import Lease, Request, World
from qloom.worlds.hosted import HostedWorld
from qloom.worlds.line import FifoLine

PATIENCE_S = 2.0
CORES = 2  # of a node, each with room for a driver
NOWHERE = Lease("driver", "", [])


@dataclass
class NextJob:
    """The handover of a driver that can be stopped."""

    next_job: str | None = None
    request: Request | None = None
    main: asyncio.Task[object] | None = None

    async def submit(self, request: Request) -> None:
        self.next_job, self.request = "next", request

    async def withdraw(self) -> None:
        self.next_job = self.request = None

    def end_driver(self) -> None:
        assert self.main is not None
        self.main.cancel()


@dataclass
class Host:
    """What one driver lives in, until it is left."""

    world: World
    own: Lease = field(default_factory=lambda: replace(NOWHERE, nodes=[]))
    node: str | None = None  # the one that a driver beside its allocations has a core of
    handover: NextJob = field(default_factory=NextJob)

    @property
    def driver_node(self) -> str | None:
        """The driver dies with this node."""
        return self.node or next(iter(self.own.nodes), None)


class Cores:
    """Nodes of which drivers have a core each; nobody can have such a node whole."""

    def __init__(self, line: FifoLine) -> None:
        self._line = line
        self._drivers: dict[str, int] = {}
        self._asked = 0

    async def take(self) -> str:
        node = next((node for node, drivers in self._drivers.items() if drivers < CORES), None)
        if node is None:
            self._asked += 1
            grant = await self._line.wait(Request(f"core {self._asked}", "drivers", 1, 1))
            assert grant is not None
            (node,) = grant.nodes
            self._drivers[node] = 0
        self._drivers[node] += 1
        return node

    def give_back(self, node: str) -> None:
        self._drivers[node] -= 1
        if self._drivers[node] == 0:
            del self._drivers[node]
            self._line.give_back(Lease("", "", [node]), [node], qpu=False)


async def house(
    kind: str,
    plan: Plan,
    world: World,
    cores: Cores,
    asked: Request | None,
    name: str,
    patience_s: float = PATIENCE_S,
) -> Host:
    """Wait in line for the place of a driver; `asked` is what its run was handed over with."""
    host = Host(world)
    if kind == "here":
        return host
    if kind == "beside" and asked is None:
        host.node = await cores.take()
    elif kind != "chain" or asked is not None:
        host.own = await _own_job(replace(asked or _first(plan), id=name, waited_for=None), world)
    hold = asked.qpu if asked is not None else held_throughout(plan).qpu
    once = kind == "chain"
    patience_s = 0.0 if once else patience_s
    host.world = HostedWorld(world, host.own, hold, host.handover, patience_s, whole=kind == "beside", once=once)
    return host


def _first(plan: Plan) -> Request:
    need = held_throughout(plan)
    device = plan.site.qpus[0].name if need.qpu is not QpuHold.TASK else None
    return Request("driver", "", need.nodes, need.nodes, need.qpu, device)


async def _own_job(request: Request, world: World) -> Lease:
    lease = await world.grant(request)
    assert lease is not None
    return lease


async def leave(host: Host, world: World, cores: Cores) -> None:
    """The job of a driver ends with it."""
    if host.own.nodes or host.own.device:
        await world.free(host.own)
    if host.node is not None:
        cores.give_back(host.node)
