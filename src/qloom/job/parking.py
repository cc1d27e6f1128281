"""What an allocation gives back while its job waits in line and does not use it (`unused.py` says when).

An allocation whose nodes were given back is parked: it asks for as many again when there is work for them. A QPU is
given back for good, and tasks of the job then queue one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from qloom.errors import NeedError, QloomError
from qloom.job.held_lease import HeldLease
from qloom.job.node_work import NodeWork
from qloom.model import Work
from qloom.world import Lease, Request

if TYPE_CHECKING:
    from qloom.job.cluster import JobCluster

UNUSED = "nothing ran on it while required work waited in line"


class Parking:
    """The unused part of one allocation. `dispatch` puts work on nodes that have come back."""

    def __init__(self, cluster: JobCluster, held: HeldLease, work: NodeWork, dispatch: Callable[[], None]) -> None:
        self._cluster = cluster
        self._held = held
        self._work = work
        self._dispatch = dispatch
        self._granted_us = cluster.world.clock.now_us()
        self.nodes: int | None = None  # how many were given back and are asked for if work comes; None: not parked
        self.returning: Request | None = None

    @property
    def nodes_unused_since_us(self) -> int | None:
        """Since when nothing has run here; None if something does, or there is nothing to give back."""
        if self._is_changing or self.nodes is not None or not self._work.is_idle or not self._held.lease.nodes:
            return None
        return self._work.idle_since_us

    @property
    def qpu_unused_since_us(self) -> int | None:
        """Since when the job has had no quantum task out; None if it has one, or there is no hold to give back."""
        if self._is_changing or self._held.session is None or self._cluster.quantum_out:
            return None
        return max(self._granted_us, self._cluster.quantum_done_us)

    @property
    def _is_changing(self) -> bool:
        return self._held.is_closing or self._held.resizing.locked()

    def give_nodes_back(self) -> None:
        """Give all of it back, until there is work for it again."""
        self._give_back(self._park)

    def give_qpu_back(self) -> None:
        """Give the QPU back for good."""
        self._give_back(self._held.drop_qpu)

    def _give_back(self, give: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """The lock is free, so it is taken before anybody else does anything."""

        async def give_back() -> None:
            async with self._held.resizing:
                if not self._held.is_closing:
                    await self._held.finish(give())

        self._cluster.tasks.spawn(give_back())

    async def _park(self) -> None:
        self.nodes, self._work.idle = len(self._held.lease.nodes), []
        await self._held.free(UNUSED)

    def has_room_for(self, work: Work) -> bool:
        """Whether nodes were given back, nobody has asked for them again, and they are enough for this work."""
        return self.nodes is not None and self.returning is None and self.nodes >= work.task.nodes

    def come_back_for_work(self, nodes: int) -> None:
        """Ask for the nodes that were given back if work waits for them; work that is wider fails."""
        self._work.fail_waiting(lambda run: too_large(run.work, nodes), wider_than=nodes)
        if self._work.waiting:
            self.come_back()

    def come_back(self) -> None:
        """Ask again for as many nodes as were given back."""
        if self.nodes is not None and self.returning is None and not self._held.is_changing:
            self.returning = self._cluster.requests.new(self.nodes, self.nodes)
            self._cluster.tasks.spawn(self._return(self.returning))

    async def _return(self, request: Request) -> None:
        lease: Lease | None = None
        try:
            lease = await self._cluster.requests.ask_again(request)
        except QloomError as failure:
            error = failure
            self._work.fail_waiting(lambda run: error)
        finally:
            self.returning = None
            if lease is not None:
                self.nodes = None
                self._held.move_to(lease)
                self._work.move_to(lease)
            self._work.notify()
            self._dispatch()
            self._work.note_idle()


def too_large(work: Work, nodes: int) -> NeedError:
    """The error of a task that is wider than the allocation it was given to."""
    return NeedError(
        f"task {work.task.name} needs {work.task.nodes} nodes at once, but its job holds {nodes}",
        job=work.job,
        hint="give the job more nodes (--nodes) or the task fewer",
    )
