"""The requests of one job for nodes and QPUs: made, recorded, in line, and granted or withdrawn.

What becomes of a lease that was granted is written in `allocation.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from qloom.aio import TaskScope
from qloom.broker.port import BrokerPort, Session
from qloom.job.unused import UnusedRule
from qloom.journal.events import Granted, QueuedAhead, Requested, Withdrawn
from qloom.journal.file import Recorder
from qloom.model import QpuHold
from qloom.world import Lease, Request, World


class JobRequests:
    """Makes the requests of one job and waits for what they ask for."""

    def __init__(
        self, world: World, broker: BrokerPort, recorder: Recorder, unused: UnusedRule, tasks: TaskScope
    ) -> None:
        self._world = world
        self._broker = broker
        self._job = recorder.job
        self._record = recorder.record
        self._unused = unused
        self._tasks = tasks
        self._made = 0
        self._opening: dict[str, asyncio.Future[Session]] = {}

    def new(
        self,
        least_nodes: int,
        most_nodes: int,
        qpu: QpuHold = QpuHold.TASK,
        device: str | None = None,
        lease: Lease | None = None,
    ) -> Request:
        """Make a request with a new id."""
        self._made += 1
        name = f"{self._job}.{self._made}"
        return Request(name, self._job, least_nodes, most_nodes, qpu, device, lease)

    async def wait_in_line(self, request: Request) -> Lease | None:
        """Wait for a lease; None if the request is withdrawn."""
        self._unused.enter_line(request)
        try:
            return await self._world.grant(request)
        finally:
            self._unused.leave_line(request)

    async def ask_again(self, request: Request) -> Lease | None:
        """Wait in line for the nodes of an allocation that were given back; None if the request is withdrawn."""
        self._record(requested(request))
        lease = await self.wait_in_line(request)
        self._record(answered(request, lease))
        return lease

    async def grant_after(self, request: Request, after: asyncio.Future[None]) -> Lease | None:
        """Wait in line for what may be granted only `after` another lease has ended; from then on it is recorded."""
        granting = self._tasks.start(self._world.grant(request))
        either: list[asyncio.Future[Any]] = [granting, after]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        withdrawn_or_failed = granting.done() and (granting.exception() is not None or granting.result() is None)
        if not withdrawn_or_failed:
            await asyncio.wait([after])  # an engine may grant it before we have noted the end of the other
            self._record(requested(request))
        self._unused.enter_line(request)
        try:
            return await granting
        finally:
            self._unused.leave_line(request)

    async def open_session(self, request: Request, device: str, engine_id: str | None) -> Session:
        """Open a session for a lease. A broker that other runs use too may let it wait for longer than the lease."""
        opening = self._tasks.start(self._broker.open_session(device, request.qpu, self._job, engine_id))
        self._opening[request.id] = opening
        try:
            return await opening
        finally:
            del self._opening[request.id]

    def withdraw(self, request: Request) -> None:
        """Leave the line, the world's or the broker's."""
        self._world.withdraw(request)
        if (opening := self._opening.get(request.id)) is not None:
            opening.cancel()


def requested(request: Request, reason: str | None = None) -> Requested:
    """The request stands in line."""
    return Requested(
        lease=request.id,
        nodes=request.least_nodes,
        device=request.device,
        hold=request.qpu.value,
        spare=request.spare,
        reason=reason,
    )


def queued_ahead(request: Request, after: Lease, reason: str | None) -> QueuedAhead:
    """The request has a place in line, and is not eligible before another lease has ended."""
    return QueuedAhead(
        lease=request.id,
        nodes=request.least_nodes,
        device=request.device,
        hold=request.qpu.value,
        spare=request.spare,
        after=after.id,
        reason=reason,
    )


def answered(request: Request, lease: Lease | None) -> Granted | Withdrawn:
    """The request was granted as this lease or (None) withdrawn."""
    if lease is None:
        return Withdrawn(lease=request.id)
    return Granted(
        lease=lease.id,
        nodes=list(lease.nodes),
        device=lease.device,
        hold=request.qpu.value if lease.device else None,
        shares=lease.shares or None,
        waited_for=request.waited_for,
        engine_us=lease.engine_us,
        engine_id=lease.engine_id,
    )
