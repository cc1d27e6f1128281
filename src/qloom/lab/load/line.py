"""The line of the virtual world when the cluster is loaded: hybrid jobs ask the same policy as everybody else.

It has the verbs of `qloom.worlds.line.Line`. Rigid jobs are anonymous counts; only nodes of hybrid jobs have names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from qloom.lab.load.background import Background
from qloom.lab.schedulers.policy import Resize
from qloom.lab.schedulers.state import FOREVER_US, Entry, Resource
from qloom.model import QpuHold
from qloom.world import Clock, Lease, Request
from qloom.worlds.partitions import NODES, Grant


class Terms(NamedTuple):
    """What a policy sees of a request: its time limit, and whether its job can be asked to resize."""

    limit_s: float
    malleable: bool = False


class LoadedLine:
    """Hands the requests of hybrid jobs to the engine, and lets the background happen in the world's time."""

    def __init__(
        self, background: Background, clock: Clock, partition: str, terms: Callable[[Request], Terms]
    ) -> None:
        self.lost: Callable[[str], None] = lambda node: None  # called when a held node fails
        self.expired: Callable[[str], None] = lambda job: None  # called when a job keeps what it had to give back
        self.jump: Callable[[int], bool] = lambda at_us: False  # goes to a time if nothing else is due until then
        self._background = background
        self._engine = background.engine
        self._state = background.engine.state
        self._clock = clock
        self._nodes = self._state.resources[partition]
        self._terms = terms
        self._free_names = list(range(1, self._nodes.total + 1))
        self._down: dict[str, float] = {}  # held nodes that were lost -> seconds of their repair
        self._grants: dict[str, tuple[Entry, asyncio.Future[Grant | None]]] = {}
        self._parts: dict[str, list[Entry]] = {}  # lease -> its grant and what it grew by
        self._names: dict[str, list[str]] = {}  # lease -> its nodes
        self._asked: dict[str, int] = {}  # lease -> nodes that a policy wants it to keep to
        self._spare: list[Entry] = []  # requests for work that may never be needed
        self._dependent: list[Entry] = []  # not yet eligible: as at most centres, their age does not count until then
        self._next_us = FOREVER_US
        self._cancel: Callable[[], None] = lambda: None
        self._engine.started = self._started
        self._engine.resized = self._resized
        background.lose_held_node = self._lose_held_node
        self._arm(background.next_us())

    # The verbs of a line

    async def wait(self, request: Request) -> Grant | None:
        """Stand in line; None if the request is withdrawn before it is granted."""
        self._state.now_us = self._clock.now_us()
        entry = self._entry(request)
        if entry is None:
            return None
        granted: asyncio.Future[Grant | None] = asyncio.get_running_loop().create_future()
        self._grants[request.id] = (entry, granted)
        if request.eligible:
            self._submit(entry)
        else:
            self._dependent.append(entry)
        self._poke()
        return await granted

    def withdraw(self, request: Request) -> None:
        """Leave the line; too late if the request was granted."""
        if request.id not in self._grants:
            return
        entry, granted = self._grants.pop(request.id)
        self._state.now_us = self._clock.now_us()
        if entry.waiting:
            self._state.leave(entry)
        else:
            (self._spare if request.eligible else self._dependent).remove(entry)
        granted.set_result(None)
        self._poke()

    def give_back(self, lease: Lease, nodes: list[str], *, qpu: bool) -> None:
        """Free nodes, and perhaps the QPU, of a lease."""
        self._state.now_us = self._clock.now_us()
        given = dict.fromkeys(nodes)
        lease.nodes = [node for node in lease.nodes if node not in given]
        count, shares = len(nodes), lease.shares if qpu else 0
        kept = []
        for entry in reversed(self._parts.pop(lease.id)):  # what it grew by goes first
            amounts = []
            for resource, amount in zip(entry.line.resources, entry.held, strict=True):
                if resource is self._nodes:
                    taken = min(count, amount)
                    count -= taken
                else:
                    taken = min(shares, amount)
                    shares -= taken
                amounts.append(amount - taken)
            if any(amounts):
                kept.append(entry)
                self._state.hold(entry, tuple(amounts))
            else:
                self._state.end(entry)
        self._names[lease.id] = list(lease.nodes)
        if kept:
            self._parts[lease.id] = kept[::-1]
        else:
            self._asked.pop(lease.id, None)
            del self._names[lease.id]
        if qpu:
            lease.device, lease.shares = None, 0
        for node in nodes:
            if node in self._down:
                self._background.take_away(self._nodes, self._down.pop(node), lambda name=node: self._put(name))  # type: ignore[misc]
            else:
                self._put(node)
        for entry in [entry for entry in self._dependent if entry.owner.eligible]:
            self._dependent.remove(entry)
            self._submit(entry)
        self._poke()

    def asked_nodes(self, lease: Lease) -> int | None:
        """How many nodes a policy wants a malleable job to keep to."""
        return self._asked.get(lease.id)

    def nodes_are_short(self) -> bool:
        """Whether somebody waits for nodes, other than for spare work."""
        return any(line.queue and self._nodes in line.resources for line in self._state.lines.values())

    def who_waits(self) -> list[str]:
        """One line for each request of a hybrid job in the line."""
        return [f"request {name} waits for {_wish(entry)}" for name, (entry, _granted) in self._grants.items()]

    def is_free(self) -> bool:
        """Whether no hybrid job holds or asks for anything."""
        return not self._parts and not self._grants

    # To and from the engine

    def _entry(self, request: Request) -> Entry | None:
        """A request as the policy sees it; None for an expander of a job that was asked to stay small."""
        names: tuple[str, ...] = (self._nodes.name,) if request.least_nodes else ()
        amounts: tuple[int, ...] = (request.least_nodes,) if request.least_nodes else ()
        if request.device is not None and request.qpu is not QpuHold.TASK:
            whole = self._state.resources[request.device].total
            names += (request.device,)
            amounts += (whole if request.qpu is QpuHold.WHOLE else 1,)
        most_nodes = request.most_nodes
        if request.lease is not None:
            asked = self._asked.get(request.lease.id)
            if asked is not None:
                most_nodes = min(most_nodes, asked - len(request.lease.nodes))
                if most_nodes < request.least_nodes:
                    return None
            parent = self._parts[request.lease.id][0]
            limit_us = max(1, parent.end_us - self._state.now_us)  # an expander has the parent's rest
        else:
            limit_us = round(self._terms(request).limit_s * 1e6)
        entry = Entry(request.id, self._state.line(names), amounts, limit_us, owner=request)
        entry.most_nodes = most_nodes
        entry.needs_pass = len(names) > 1
        entry.malleable = request.lease is None and request.least_nodes > 0 and self._terms(request).malleable
        return entry

    def _submit(self, entry: Entry) -> None:
        entry.owner.waited_for = self._shortage(entry)
        if entry.owner.spare:
            self._spare.append(entry)
        else:
            self._engine.submit(entry)

    def _shortage(self, entry: Entry) -> str:
        short = [
            resource.name
            for resource, amount in zip(entry.line.resources, entry.amounts, strict=True)
            if amount > resource.free
        ]
        devices = [name for name in short if name != self._nodes.name]
        return devices[0] if devices else NODES

    def _started(self, entry: Entry) -> None:
        request: Request = entry.owner
        _entry, granted = self._grants.pop(request.id)
        nodes, shares = [], 0
        for resource, amount in zip(entry.line.resources, entry.held, strict=True):
            if resource is self._nodes:
                nodes = [f"n{heappop(self._free_names)}" for _ in range(amount)]
            else:
                shares = amount
        lease = request.id if request.lease is None else request.lease.id
        self._parts.setdefault(lease, []).append(entry)
        self._names.setdefault(lease, []).extend(nodes)
        if request.lease is None:
            self._background.later(entry.end_us, lambda: self._at_limit(entry, lease))
        granted.set_result(Grant(request, tuple(nodes), shares))

    def _at_limit(self, entry: Entry, lease: str) -> None:
        if entry in self._parts.get(lease, ()):
            self.expired(entry.owner.job)

    def _resized(self, resize: Resize) -> None:
        request: Request = resize.entry.owner
        lease = request.id if request.lease is None else request.lease.id
        if lease in self._parts and self._parts[lease][0].malleable:
            self._asked[lease] = resize.nodes

    def _lose_held_node(self, resource: Resource, place: int, repair_s: float) -> None:
        """A node of a lease fails; it is out for repair once the lease gives it back."""
        for nodes in self._names.values():
            if place < len(nodes):
                self._down[nodes[place]] = repair_s
                self.lost(nodes[place])
                return
            place -= len(nodes)

    def _put(self, node: str) -> None:
        heappush(self._free_names, int(node[1:]))

    # Time

    def _poke(self) -> None:
        """Have the policy look, after all else that happens at this instant."""
        self._engine.touch()
        self._arm(self._clock.now_us())

    def _arm(self, at_us: int) -> None:
        if at_us < self._next_us:
            self._cancel()
            self._next_us = at_us
            self._cancel = self._clock.deadline((at_us - self._clock.now_us()) / 1e6, self._happen)

    def _happen(self) -> None:
        background = self._background
        self._next_us, self._cancel = FOREVER_US, lambda: None
        next_us = self._clock.now_us()
        while True:
            background.step(next_us)
            if self._spare and not self.nodes_are_short() and self._spare[0].amounts[0] <= self._nodes.free:
                self._engine.submit(self._spare.pop(0))
                self._poke()
            next_us = background.next_us()
            if self._next_us <= next_us or not self.jump(next_us):  # else it concerns rigid jobs alone
                break
        self._arm(next_us)


def _wish(entry: Entry) -> str:
    parts = zip(entry.amounts, entry.line.resources, strict=True)
    return " and ".join(f"{amount} of {resource.name}" for amount, resource in parts)
