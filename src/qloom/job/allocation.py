"""What an allocation means, once for every world: who waits for a node, and how it grows, shrinks and ends.

- Required work goes before spare work; spare work runs only on nodes that would idle, and is dropped when
  required work or a shrink needs its node.
- If a scheduler asked a malleable job to shrink, a node is given back when its task has ended, before the next one.
- Transitions (grow, shrink, release) belong to the allocation: cancelling a caller stops its waiting only.
- Work whose node has failed runs again, elsewhere; if too few nodes are left for it, others are asked for.
- `release` takes no new work, waits for the work it took on, and may be called any number of times.
- A request that comes after an allocation has its place in line from when it was made, blocks nobody, and is not
  eligible before all of that allocation was given back: so the journal has it as `queued_ahead`, and as `requested`
  from then on. An allocation that only loses its nodes has not ended.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qloom.job.held_lease import HeldLease
from qloom.job.node_work import NodeWork
from qloom.job.parking import Parking, too_large
from qloom.job.task_runs import TaskRun
from qloom.journal.events import Requested
from qloom.model import QpuHold, Work
from qloom.ports import Allocation
from qloom.world import Lease, Request

if TYPE_CHECKING:
    from qloom.broker.port import Session
    from qloom.job.cluster import JobCluster


REPLACEMENT_S = 60.0  # how long a job waits for a node in the place of one that has failed


class JobAllocation(Allocation):
    """Nodes and perhaps a QPU of one job, granted by a world as a lease."""

    def __init__(self, cluster: JobCluster, lease: Lease, session: Session | None, hold: QpuHold) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._held = HeldLease(cluster, lease, session, self.dispatch)
        self.hold = hold  # how the job means to hold a QPU with it
        self.owes_qpu = session is None and hold is not QpuHold.TASK  # it was left out until a call needs it
        self.qpu_used = False  # whether a task has run in its hold
        self.beside: list[JobAllocation] = []  # holds of other QPUs that end with this one
        self._work = NodeWork(cluster, lease, self._nodes_freed)
        self._leaving: list[str] = []  # idle nodes that a scheduler asked for
        self._replacing: Request | None = None
        self.parking = Parking(cluster, self._held, self._work, self.dispatch)
        self.released: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # for those who come after
        cluster.allocations.append(self)
        self.dispatch()
        cluster.unused.look()

    @property
    def lease(self) -> Lease:
        """What the world has granted; another one after the nodes were given back and have returned."""
        return self._held.lease

    @property
    def session(self) -> Session | None:
        """The hold of the QPU, if it has one."""
        return self._held.session

    @property
    def nodes(self) -> Sequence[str]:
        """The nodes held now, without those that are about to be given back."""
        leaving = self._leaving
        return tuple([node for node in self.lease.nodes if node not in leaving] if leaving else self.lease.nodes)

    @property
    def has_grown(self) -> bool:
        """Whether the nodes that are held came in several grants."""
        return self._held.has_grown

    @property
    def busy_nodes(self) -> int:
        """How many nodes run required work, or are promised to it."""
        return self._work.busy_nodes

    @property
    def is_idle(self) -> bool:
        """Whether no work, spare work included, runs or waits here."""
        return self._work.is_idle

    async def wait_idle(self, for_s: float) -> None:
        """Wait until no work, spare work included, has run here for `for_s` seconds from now on."""
        await self._work.wait_idle(for_s)

    def drop_spare(self, count: int) -> int:
        """Free nodes for required work; returns how many."""
        return self._work.drop_spare(count)

    async def __aenter__(self) -> JobAllocation:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.release()

    # Work

    def run(self, work: Work) -> TaskRun:
        """Take work on, to be run as soon as enough nodes are idle. Cancelling the future kills the task."""
        if self._held.is_closing:
            raise RuntimeError(f"task {work.task.name} came to an allocation that is being released")
        run = TaskRun(work, self._abandon)
        self._work.waiting.append(run)
        self.dispatch()
        return run

    def _abandon(self, run: TaskRun) -> None:
        if run in self._work.waiting:
            self._work.waiting.remove(run)
            for request in (self._replacing, self.parking.returning):
                if request is not None and not self._work.waiting:
                    self._world.withdraw(request)
            self._work.notify()
            self._work.note_idle()
            self.dispatch()

    def dispatch(self) -> None:
        """Put work on idle nodes: required work in the order it came, the job's common work, then spare work."""
        if self.parking.nodes is not None:
            return self.parking.come_back_for_work(self.parking.nodes)
        while self._work.waiting and self._work.waiting[0].work.task.nodes <= len(self._work.idle):
            self._work.start(self._work.waiting.popleft())
        if self._work.waiting:
            wanted = self._work.waiting[0].work.task.nodes
            if wanted > len(self.lease.nodes) and self._replacing is None:
                if self._work.loss is not None:
                    self._ask_for_replacement(wanted - len(self.lease.nodes))
                elif not self._held.is_changing:
                    run = self._work.waiting.popleft()
                    if not run.done():
                        run.set_exception(too_large(run.work, len(self.lease.nodes)))
                    return self.dispatch()
            self.drop_spare(wanted - len(self._work.idle))
        elif not self._held.is_closing and not self._held.is_changing:
            while (common := self._cluster.take(len(self._work.idle))) is not None:
                common.abandon = self._abandon  # it belongs to this allocation from now on
                self._work.start(common)
            while self._work.idle and (work := self._cluster.take_spare()) is not None:
                self._work.start_spare(work)
        return None

    def _nodes_freed(self) -> None:
        self._keep_to_what_was_asked()
        self._work.notify()
        self.dispatch()
        self._work.note_idle()

    def _ask_for_replacement(self, missing: int) -> None:
        self._replacing = self._cluster.requests.new(missing, missing, lease=self.lease)
        self._cluster.record(Requested(lease=self.lease.id, nodes=missing, grow=True))
        self._cluster.tasks.spawn(self._replace(self._replacing))

    async def _take_more(self, request: Request) -> int:
        gained = await self._held.take_more(request)
        self._work.idle.extend(gained)
        return len(gained)

    async def _replace(self, request: Request) -> None:
        """No transition: a release waits for the work, and the work for this."""
        cancel = self._world.clock.deadline(REPLACEMENT_S, lambda: self._world.withdraw(request))
        loss, gained = self._work.loss, 0
        try:
            gained = await self._take_more(request)
        finally:
            cancel()
            self._replacing = None
            if not gained and loss is not None:
                self._work.fail_waiting(lambda run: loss, wider_than=len(self.lease.nodes))
            self._work.notify()
            self.dispatch()

    # Transitions

    async def grow(self, nodes: int, within_s: float, *, for_each_grant: bool = False) -> None:
        """Ask for nodes until `nodes` are held, for at most `within_s`, or for so long again after each grant."""
        async with self._held.resizing:
            if self.parking.nodes is not None:
                self.parking.nodes = max(self.parking.nodes, nodes)  # that is how many it asks for when there is work
            if self._held.is_closing or self.parking.nodes is not None or nodes <= len(self.lease.nodes):
                return
            deadline_us = self._world.clock.now_us() + round(within_s * 1e6)
            while len(self.lease.nodes) < nodes:
                missing = nodes - len(self.lease.nodes)
                left_s = within_s if for_each_grant else (deadline_us - self._world.clock.now_us()) / 1e6
                if left_s < 0 or not await self._grow_once(missing, left_s):
                    return

    async def _grow_once(self, missing: int, within_s: float) -> bool:
        request = self._cluster.requests.new(least_nodes=1, most_nodes=missing, lease=self.lease)
        self._cluster.record(Requested(lease=self.lease.id, nodes=missing, grow=True))
        withdraw = functools.partial(self._world.withdraw, request)
        cancel = self._world.clock.deadline(within_s, withdraw)
        try:
            return await self._held.finish(self._take_more(request), hurry=withdraw) > 0
        finally:
            cancel()

    async def shrink(self, nodes: int) -> None:
        """Give nodes back until `nodes` are held, but none that runs required work."""
        async with self._held.resizing:
            if self.parking.nodes is not None:
                self.parking.nodes = min(self.parking.nodes, nodes)
            if self._held.is_closing or self.parking.nodes is not None:
                return
            keep = max(nodes, min(self.busy_nodes, len(self.lease.nodes)))
            if keep < len(self.lease.nodes):
                await self._held.finish(self._give_nodes(keep))

    async def _give_nodes(self, keep: int) -> None:
        count = len(self.nodes) - keep
        while len(self._work.idle) < count and self._work.spare:
            self.drop_spare(count - len(self._work.idle))
            if not any(spare.is_dropped for spare in self._work.spare.values()):
                break  # what is left has become required meanwhile
            await self._work.wait_change()
        kept = max(0, len(self._work.idle) - count)
        nodes, self._work.idle = self._work.idle[kept:], self._work.idle[:kept]
        if nodes:
            await self._drop(nodes)

    async def _drop(self, nodes: list[str]) -> None:
        self._work.idle.extend(await self._held.drop(nodes))  # what the engine refused

    def _keep_to_what_was_asked(self) -> None:
        """A task has ended: give idle nodes back if a scheduler wants them, and no task that waits needs them."""
        asked = self._world.asked_nodes(self.lease)
        if asked is None or self._held.is_closing:
            return
        keep = max(asked, *(run.work.task.nodes for run in self._work.waiting), 1)
        count = min(len(self.nodes) - keep, len(self._work.idle))
        if count > 0:
            if not self._leaving:
                self._cluster.tasks.spawn(self._leave())
            self._leaving += self._work.idle[-count:]
            del self._work.idle[-count:]

    async def _leave(self) -> None:
        async with self._held.resizing:
            while self._leaving and not self._held.is_closing:  # a release gives back all nodes
                nodes = list(self._leaving)
                await self._held.finish(self._drop(nodes))
                del self._leaving[: len(nodes)]  # others may have come meanwhile

    async def release_qpu(self) -> None:
        """Give the QPU back and keep the nodes."""
        async with self._held.resizing:
            if self.lease.device is not None and not self._held.is_closing:
                await self._held.finish(self._held.drop_qpu())
        await self._release_beside()

    async def _release_beside(self) -> None:
        while self.beside:
            await self.beside.pop().release()

    async def release(self) -> None:
        """Give everything back once the work that it took on is done."""
        self._held.is_closing = True
        async with self._held.resizing:
            if self in self._cluster.allocations:
                await self._held.finish(self._give_all())

    async def _give_all(self) -> None:
        while not self.is_idle or self._replacing or self.parking.returning:
            self.drop_spare(len(self._work.spare))
            await self._work.wait_change()
        await self._release_beside()
        try:
            if self.parking.nodes is None:
                await self._held.free()
            self._cluster.allocations.remove(self)
        finally:
            if not self.released.done():
                self.released.set_result(None)
