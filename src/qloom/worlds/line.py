"""Waiting in line for nodes and QPU shares, for worlds that do their own scheduling."""

from __future__ import annotations

import asyncio
from typing import Protocol

from qloom.model import QpuHold
from qloom.world import Clock, Lease, Request
from qloom.worlds.partitions import Grant, Partitions


class WorldLine(Protocol):
    """What virtual time asks of a line: that of the world itself, or of a cluster with other users."""

    async def wait(self, request: Request) -> Grant | None:
        """Stand in line; None if the request is withdrawn before it is granted."""

    def withdraw(self, request: Request) -> None:
        """Leave the line; too late if the request was granted."""

    def give_back(self, lease: Lease, nodes: list[str], *, qpu: bool) -> None:
        """Free nodes, and perhaps the QPU, of a lease."""

    def asked_nodes(self, lease: Lease) -> int | None:
        """How many nodes a scheduler wants a malleable job to keep to; None as long as it asked for nothing."""

    def nodes_are_short(self) -> bool:
        """Whether somebody waits for nodes, other than for spare work."""

    def who_waits(self) -> list[str]:
        """One line for each request in the line, in plain words."""

    def is_free(self) -> bool:
        """Whether nobody holds anything or stands in line."""


class FifoLine:
    """The partitions of a world and those who wait. With a tick, who has to wait starts at the next one."""

    def __init__(self, partitions: Partitions, clock: Clock, tick_s: float = 0.0) -> None:
        self.partitions = partitions
        self._clock = clock
        self._tick_us = round(tick_s * 1e6)
        self._grants: dict[str, asyncio.Future[Grant | None]] = {}
        self._pass_is_due = False  # at the next tick

    async def wait(self, request: Request) -> Grant | None:
        """Stand in line; None if the request is withdrawn before it is granted."""
        if self._tick_us:
            needs_a_pass = request.qpu is not QpuHold.TASK and request.least_nodes > 0  # as Slurm's het jobs
            if not needs_a_pass and (grant := self.partitions.try_at_once(request)) is not None:
                return grant
        granted: asyncio.Future[Grant | None] = asyncio.get_running_loop().create_future()
        self._grants[request.id] = granted
        if self.partitions.enter(request) or self._tick_us:
            self._schedule()
        return await granted

    def withdraw(self, request: Request) -> None:
        """Leave the line; too late if the request was granted."""
        if self.partitions.leave(request):
            self._grants.pop(request.id).set_result(None)
            self._schedule()

    def give_back(self, lease: Lease, nodes: list[str], *, qpu: bool) -> None:
        """Free nodes, and perhaps the QPU, of a lease; whoever is next may have them."""
        gives_all = len(nodes) == len(lease.nodes)
        lease.nodes = [] if gives_all else [node for node in lease.nodes if node not in nodes]
        if qpu and lease.device is not None:
            self.partitions.give_back(nodes, lease.device, lease.shares)
            lease.device, lease.shares = None, 0
        else:
            self.partitions.give_back(nodes)
        self._schedule()

    def asked_nodes(self, lease: Lease) -> int | None:
        """Nobody asks anybody to shrink here."""
        return None

    def nodes_are_short(self) -> bool:
        """Whether somebody waits for nodes, other than for spare work."""
        return self.partitions.nodes_are_short()

    def who_waits(self) -> list[str]:
        """One line for each request in the line, in plain words."""
        lines = []
        for request in self.partitions.waiting:
            things = [f"{request.least_nodes} nodes"] if request.least_nodes else []
            things += [f"QPU {request.device} ({request.qpu.value})"] if request.device else []
            then = "" if request.eligible or request.after is None else f" after {request.after.id}"
            lines.append(f"job {request.job} waits for {' and '.join(things)}{then}")
        return lines

    def is_free(self) -> bool:
        """Whether nobody holds anything or stands in line."""
        return self.partitions.all_free() and not self.partitions.waiting

    def _schedule(self) -> None:
        if not self._tick_us:
            self._pass()
        elif self.partitions.waiting and not self._pass_is_due:
            self._pass_is_due = True
            self._clock.call_later((self._tick_us - self._clock.now_us() % self._tick_us) / 1e6, self._pass_at_tick)

    def _pass_at_tick(self) -> None:
        self._pass_is_due = False
        self._pass()

    def _pass(self) -> None:
        for grant in self.partitions.schedule():
            self._grants.pop(grant.request.id).set_result(grant)
