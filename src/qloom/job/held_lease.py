"""A lease that a job holds, with the session on its QPU: each change is made in the world, then recorded.

A change that has begun is finished, whatever happens to its caller. When it is due is decided in `allocation.py` and
`parking.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, TypeVar

from qloom.aio import finish, outcome_of
from qloom.journal.events import Grown, QpuReleased, Released, Shrunk, Withdrawn
from qloom.world import Lease, Request

if TYPE_CHECKING:
    from typing import Any

    from qloom.broker.port import Session
    from qloom.job.cluster import JobCluster

T = TypeVar("T")


class HeldLease:
    """What one allocation holds. `changed` is called after each change."""

    def __init__(
        self, cluster: JobCluster, lease: Lease, session: Session | None, changed: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._changed = changed
        self._first = dict.fromkeys(lease.nodes)  # the nodes of the first grant
        self._change: asyncio.Task[Any] | None = None
        self.lease = lease
        self.session = session
        self.is_closing = False
        self.resizing = asyncio.Lock()  # held by whoever changes what is held

    @property
    def is_changing(self) -> bool:
        """Whether a change has begun and is not finished."""
        return self._change is not None

    @property
    def has_grown(self) -> bool:
        """Whether the nodes that are held came in several grants."""
        return any(node not in self._first for node in self.lease.nodes)

    def move_to(self, lease: Lease) -> None:
        """Go on with another lease, in place of one that was given back."""
        self.lease, self._first = lease, dict.fromkeys(lease.nodes)

    async def finish(self, change: Coroutine[Any, Any, T], hurry: Callable[[], None] | None = None) -> T:
        """Make a change, even if the caller is cancelled meanwhile; then `hurry` is called to end it soon."""
        self._change = task = self._cluster.tasks.start(change)
        try:
            return await outcome_of(task)
        except asyncio.CancelledError:
            if hurry is not None:
                hurry()
            await finish(task)
            raise
        finally:
            self._change = None
            self._changed()

    async def take_more(self, request: Request) -> Sequence[str]:
        """Wait in line for more nodes; returns them, none if the request was withdrawn."""
        gained = await self._world.more_nodes(request)
        lease = self.lease
        if gained:
            grown = Grown(lease=lease.id, nodes=list(gained), engine_us=lease.engine_us, engine_id=lease.engine_id)
            self._cluster.record(grown)
        else:
            self._cluster.record(Withdrawn(lease=lease.id))
        return gained

    async def drop(self, nodes: list[str]) -> list[str]:
        """Give nodes back; returns those that the engine refused to take."""
        engine_us = await self._world.drop_nodes(self.lease, nodes)
        still_held = dict.fromkeys(self.lease.nodes)
        given = [node for node in nodes if node not in still_held]
        if given:
            self._cluster.record(Shrunk(lease=self.lease.id, nodes=given, engine_us=engine_us))
        return [node for node in nodes if node in still_held]

    async def drop_qpu(self) -> None:
        """Give the QPU back and keep the nodes."""
        await self._close_session()
        device, shares = self.lease.device, self.lease.shares
        engine_us = await self._world.drop_qpu(self.lease)
        self._cluster.record(QpuReleased(lease=self.lease.id, device=device, shares=shares, engine_us=engine_us))

    async def free(self, reason: str | None = None) -> None:
        """Give all of it back."""
        await self._close_session()
        engine_us = await self._world.free(self.lease)
        self._cluster.record(Released(lease=self.lease.id, engine_us=engine_us, reason=reason))

    async def _close_session(self) -> None:
        if self.session is not None:
            await self.session.close()
            self.session = None
