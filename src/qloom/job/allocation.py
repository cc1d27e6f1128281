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
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from qloom.aio import finish, outcome_of
from qloom.errors import NeedError, QloomError
from qloom.job.node_work import NodeWork
from qloom.job.task_runs import TaskRun
from qloom.journal.events import Grown, QpuReleased, Released, Requested, Shrunk, Withdrawn
from qloom.model import QpuHold, Work
from qloom.ports import Allocation
from qloom.world import Lease, Request

if TYPE_CHECKING:
    from qloom.broker.port import Session
    from qloom.job.cluster import JobCluster


UNUSED = "nothing ran on it while required work waited in line"
REPLACEMENT_S = 60.0  # how long a job waits for a node in the place of one that has failed


class JobAllocation(Allocation):
    """Nodes and perhaps a QPU of one job, granted by a world as a lease."""

    def __init__(self, cluster: JobCluster, lease: Lease, session: Session | None, hold: QpuHold) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self.lease = lease
        self.session = session
        self.hold = hold  # how the job means to hold a QPU with it
        self.owes_qpu = session is None and hold is not QpuHold.TASK  # it was left out until a call needs it
        self.qpu_used = False  # whether a task has run in its hold
        self.beside: list[JobAllocation] = []  # holds of other QPUs that end with this one
        self._work = NodeWork(cluster, lease, self._nodes_freed)
        self._leaving: list[str] = []  # idle nodes that a scheduler asked for
        self._first = dict.fromkeys(lease.nodes)  # the nodes of the first grant
        self._transition: asyncio.Task[Any] | None = None
        self._resizing = asyncio.Lock()
        self._replacing: Request | None = None
        self._closing = False
        self._granted_us = self._world.clock.now_us()
        self._parked: int | None = None  # how many nodes it had that were given back: it asks for them if work comes
        self._returning: Request | None = None
        self.released: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # for those who come after
        cluster.allocations.append(self)
        self.dispatch()
        cluster.unused.look()

    @property
    def nodes(self) -> Sequence[str]:
        """The nodes held now, without those that are about to be given back."""
        leaving = self._leaving
        return tuple([node for node in self.lease.nodes if node not in leaving] if leaving else self.lease.nodes)

    @property
    def has_grown(self) -> bool:
        """Whether the nodes that are held came in several grants."""
        return any(node not in self._first for node in self.lease.nodes)

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
        if self._closing:
            raise RuntimeError(f"task {work.task.name} came to an allocation that is being released")
        run = TaskRun(work, self._abandon)
        self._work.waiting.append(run)
        self.dispatch()
        return run

    def _abandon(self, run: TaskRun) -> None:
        if run in self._work.waiting:
            self._work.waiting.remove(run)
            for request in (self._replacing, self._returning):
                if request is not None and not self._work.waiting:
                    self._world.withdraw(request)
            self._work.notify()
            self._work.note_idle()
            self.dispatch()

    def dispatch(self) -> None:
        """Put work on idle nodes: required work in the order it came, the job's common work, then spare work."""
        if self._parked is not None:
            return self._come_back_for_work(self._parked)
        while self._work.waiting and self._work.waiting[0].work.task.nodes <= len(self._work.idle):
            self._work.start(self._work.waiting.popleft())
        if self._work.waiting:
            wanted = self._work.waiting[0].work.task.nodes
            if wanted > len(self.lease.nodes) and self._replacing is None:
                if self._work.loss is not None:
                    self._ask_for_replacement(wanted - len(self.lease.nodes))
                elif self._transition is None:
                    run = self._work.waiting.popleft()
                    if not run.done():
                        run.set_exception(_too_large(run.work, len(self.lease.nodes)))
                    return self.dispatch()
            self.drop_spare(wanted - len(self._work.idle))
        elif not self._closing and self._transition is None:
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

    # Giving back what is not used, while the job waits in line (`qloom.job.unused`)

    @property
    def nodes_unused_since_us(self) -> int | None:
        """Since when nothing has run here; None if something does, or there is nothing to give back."""
        is_changing = self._closing or self._parked is not None or self._resizing.locked()
        return None if is_changing or not self.is_idle or not self.lease.nodes else self._work.idle_since_us

    @property
    def qpu_unused_since_us(self) -> int | None:
        """Since when the job has had no quantum task out; None if it has one, or there is no hold to give back."""
        is_changing = self._closing or self._resizing.locked()
        if is_changing or self.session is None or self._cluster.quantum_out:
            return None
        return max(self._granted_us, self._cluster.quantum_done_us)

    def give_nodes_back(self) -> None:
        """Give all of it back, until there is work for it again."""
        self._give_unused(self._park)

    def give_qpu_back(self) -> None:
        """Give the QPU back for good; tasks of the job then queue one by one."""
        self._give_unused(self._give_qpu)

    def _give_unused(self, give: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """The lock is free, so it is taken before anybody else does anything."""

        async def give_back() -> None:
            async with self._resizing:
                if not self._closing:
                    await self._own(give())

        self._cluster.tasks.spawn(give_back())

    @property
    def is_parked(self) -> bool:
        """Whether its nodes were given back and nobody has asked for them again."""
        return self._parked is not None and self._returning is None

    @property
    def size(self) -> int:
        """How many nodes it has, or had when they were given back."""
        return len(self.lease.nodes) if self._parked is None else self._parked

    async def _park(self) -> None:
        self._parked, self._work.idle = len(self.lease.nodes), []
        if self.session is not None:
            await self.session.close()
            self.session = None
        engine_us = await self._world.free(self.lease)
        self._cluster.record(Released(lease=self.lease.id, engine_us=engine_us, reason=UNUSED))

    def _come_back_for_work(self, nodes: int) -> None:
        self._work.fail_waiting(lambda run: _too_large(run.work, nodes), wider_than=nodes)
        if self._work.waiting:
            self.come_back()

    def come_back(self) -> None:
        """Ask again for as many nodes as were given back."""
        if self._parked is not None and self._returning is None and self._transition is None:
            self._returning = self._cluster.requests.new(self._parked, self._parked)
            self._cluster.tasks.spawn(self._return(self._returning))

    async def _return(self, request: Request) -> None:
        lease: Lease | None = None
        try:
            lease = await self._cluster.requests.ask_again(request)
        except QloomError as failure:
            error = failure
            self._work.fail_waiting(lambda run: error)
        finally:
            self._returning = None
            if lease is not None:
                self.lease, self._parked = lease, None
                self._work.move_to(lease)
                self._first = dict.fromkeys(lease.nodes)
            self._work.notify()
            self.dispatch()
            self._work.note_idle()

    # Transitions

    async def grow(self, nodes: int, within_s: float, *, for_each_grant: bool = False) -> None:
        """Ask for nodes until `nodes` are held, for at most `within_s`, or for so long again after each grant."""
        async with self._resizing:
            if self._parked is not None:
                self._parked = max(self._parked, nodes)  # that is how many it asks for when there is work
            if self._closing or self._parked is not None or nodes <= len(self.lease.nodes):
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
        cancel = self._world.clock.deadline(within_s, lambda: self._world.withdraw(request))
        try:
            gained: int = await self._own(self._take_more(request), then=lambda: self._world.withdraw(request))
        finally:
            cancel()
        return gained > 0

    async def _take_more(self, request: Request) -> int:
        gained = await self._world.more_nodes(request)
        if gained:
            self._cluster.record(
                Grown(
                    lease=self.lease.id,
                    nodes=list(gained),
                    engine_us=self.lease.engine_us,
                    engine_id=self.lease.engine_id,
                )
            )
        else:
            self._cluster.record(Withdrawn(lease=self.lease.id))
        self._work.idle.extend(gained)
        return len(gained)

    async def shrink(self, nodes: int) -> None:
        """Give nodes back until `nodes` are held, but none that runs required work."""
        async with self._resizing:
            if self._parked is not None:
                self._parked = min(self._parked, nodes)
            if self._closing or self._parked is not None:
                return
            keep = max(nodes, min(self.busy_nodes, len(self.lease.nodes)))
            if keep < len(self.lease.nodes):
                await self._own(self._give_nodes(keep))

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
        engine_us = await self._world.drop_nodes(self.lease, nodes)
        still_held = dict.fromkeys(self.lease.nodes)
        self._work.idle.extend(node for node in nodes if node in still_held)  # the engine refused
        given = [node for node in nodes if node not in still_held]
        if given:
            self._cluster.record(Shrunk(lease=self.lease.id, nodes=given, engine_us=engine_us))

    def _keep_to_what_was_asked(self) -> None:
        """A task has ended: give idle nodes back if a scheduler wants them, and no task that waits needs them."""
        asked = self._world.asked_nodes(self.lease)
        if asked is None or self._closing:
            return
        keep = max(asked, *(run.work.task.nodes for run in self._work.waiting), 1)
        count = min(len(self.nodes) - keep, len(self._work.idle))
        if count > 0:
            if not self._leaving:
                self._cluster.tasks.spawn(self._leave())
            self._leaving += self._work.idle[-count:]
            del self._work.idle[-count:]

    async def _leave(self) -> None:
        async with self._resizing:
            while self._leaving and not self._closing:  # a release gives back all nodes
                nodes = list(self._leaving)
                await self._own(self._drop(nodes))
                del self._leaving[: len(nodes)]  # others may have come meanwhile

    async def release_qpu(self) -> None:
        """Give the QPU back and keep the nodes."""
        async with self._resizing:
            if self.lease.device is not None and not self._closing:
                await self._own(self._give_qpu())
        await self._release_beside()

    async def _release_beside(self) -> None:
        while self.beside:
            await self.beside.pop().release()

    async def _give_qpu(self) -> None:
        if self.session is not None:
            await self.session.close()
            self.session = None
        device, shares = self.lease.device, self.lease.shares
        engine_us = await self._world.drop_qpu(self.lease)
        self._cluster.record(QpuReleased(lease=self.lease.id, device=device, shares=shares, engine_us=engine_us))

    async def release(self) -> None:
        """Give everything back once the work that it took on is done."""
        self._closing = True
        async with self._resizing:
            if self in self._cluster.allocations:
                await self._own(self._give_all())

    async def _give_all(self) -> None:
        while not self.is_idle or self._replacing or self._returning:
            self.drop_spare(len(self._work.spare))
            await self._work.wait_change()
        await self._release_beside()
        try:
            if self._parked is None:
                if self.session is not None:
                    await self.session.close()
                    self.session = None
                engine_us = await self._world.free(self.lease)
                self._cluster.record(Released(lease=self.lease.id, engine_us=engine_us))
            self._cluster.allocations.remove(self)
        finally:
            if not self.released.done():
                self.released.set_result(None)

    async def _own(self, transition: Coroutine[Any, Any, Any], then: Any = None) -> Any:
        """See a transition through, whatever happens to the caller; `then` hurries it up if the caller goes."""
        self._transition = self._cluster.tasks.start(transition)
        try:
            return await outcome_of(self._transition)
        except asyncio.CancelledError:
            if then is not None:
                then()
            await finish(self._transition)
            raise
        finally:
            self._transition = None
            self.dispatch()


def _too_large(work: Work, nodes: int) -> NeedError:
    return NeedError(
        f"task {work.task.name} needs {work.task.nodes} nodes at once, but its job holds {nodes}",
        job=work.job,
        hint="give the job more nodes (--nodes) or the task fewer",
    )
