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
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from qloom.aio import finish
from qloom.errors import NeedError, NodeLost, QloomError
from qloom.journal.events import Grown, QpuReleased, Released, Requested, Shrunk, Withdrawn
from qloom.model import Work
from qloom.ports import Allocation, Lease, Request

if TYPE_CHECKING:
    from qloom.broker.port import Session
    from qloom.job.cluster import JobCluster


MOST_RUNS = 3  # of a task whose nodes fail
UNUSED = "nothing ran on it while required work waited in line"
REPLACEMENT_S = 60.0  # how long a job waits for a node in the place of one that has failed


class Ticket:
    """Required work that waits for nodes, or runs; `abandon` is called if its future is cancelled while it waits."""

    def __init__(self, work: Work, abandon: Callable[[Ticket], None]) -> None:
        self.work = work
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.runner: asyncio.Task[Any] | None = None
        self.losses = 0  # nodes that failed under it
        self.abandon = abandon
        self.done.add_done_callback(self._ended)

    def _ended(self, done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            return
        if self.runner is None:
            self.abandon(self)
        else:
            self.runner.cancel()


class JobAllocation(Allocation):
    """Nodes and perhaps a QPU of one job, granted by a world as a lease."""

    def __init__(self, cluster: JobCluster, lease: Lease, session: Session | None) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self.lease = lease
        self.session = session
        self._idle = list(lease.nodes)
        self._leaving: list[str] = []  # idle nodes that a scheduler asked for
        self._waiting: deque[Ticket] = deque()
        self._running: list[Ticket] = []
        self._spare: dict[str, tuple[Work, asyncio.Task[Any]]] = {}  # node -> what runs there meanwhile
        self._started = 0  # tasks so far
        self._first = dict.fromkeys(lease.nodes)  # the nodes of the first grant
        self._changed: asyncio.Event | None = None  # made when somebody waits for a change
        self._transition: asyncio.Task[Any] | None = None
        self._resizing = asyncio.Lock()
        self._loss: NodeLost | None = None  # the last one: work that is too wide since then asks for another node
        self._replacing: Request | None = None
        self._closing = False
        self._idle_since_us = self._granted_us = self._world.clock.now_us()
        self._giving: asyncio.Future[None] | None = None  # what is under way of giving back and asking again
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
        awaited = sum(1 for work, _ in self._spare.values() if self._cluster.spare.is_wanted(work))
        return awaited + sum(ticket.work.task.nodes for ticket in (*self._running, *self._waiting))

    @property
    def is_idle(self) -> bool:
        """Whether no work, spare work included, runs or waits here."""
        return not (self._waiting or self._running or self._spare)

    async def __aenter__(self) -> JobAllocation:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.release()

    # Work

    def run(self, work: Work) -> asyncio.Future[Any]:
        """Take work on, to be run as soon as enough nodes are idle. Cancelling the future kills the task."""
        if self._closing:
            raise RuntimeError(f"task {work.task.name} came to an allocation that is being released")
        ticket = Ticket(work, self._abandon)
        self._waiting.append(ticket)
        self.dispatch()
        return ticket.done

    def _abandon(self, ticket: Ticket) -> None:
        if ticket in self._waiting:
            self._waiting.remove(ticket)
            for request in (self._replacing, self._returning):
                if request is not None and not self._waiting:
                    self._world.withdraw(request)
            self._notify()
            self._note_idle()
            self.dispatch()

    def dispatch(self) -> None:
        """Put work on idle nodes: required work in the order it came, the job's common work, then spare work."""
        if self._parked is not None:
            return self._come_back_for_work(self._parked)
        while self._waiting and self._waiting[0].work.task.nodes <= len(self._idle):
            self._start(self._waiting.popleft())
        if self._waiting:
            wanted = self._waiting[0].work.task.nodes
            if wanted > len(self.lease.nodes) and self._replacing is None:
                if self._loss is not None:
                    self._ask_for_replacement(wanted - len(self.lease.nodes))
                elif self._transition is None:
                    ticket = self._waiting.popleft()
                    ticket.done.set_exception(_too_large(ticket.work, len(self.lease.nodes)))
                    return self.dispatch()
            self.drop_spare(wanted - len(self._idle))
        elif not self._closing and self._transition is None:
            while (common := self._cluster.take(len(self._idle))) is not None:
                self._start(common)
            while self._idle and (work := self._cluster.take_spare()) is not None:
                self._start_spare(work, self._idle.pop(0))
        return None

    def _start(self, ticket: Ticket) -> None:
        """Cleaning up is a callback: a task that is cancelled before its first step never enters its body."""
        ticket.abandon = self._abandon  # common work belongs to this allocation from now on
        count = ticket.work.task.nodes
        nodes, self._idle = self._idle[:count], self._idle[count:]
        ticket.runner = asyncio.ensure_future(self._cluster.execute(nodes, ticket.work, self.lease))
        self._running.append(ticket)
        self._started += 1

        def ended(runner: asyncio.Task[Any]) -> None:
            self._running.remove(ticket)
            self._note_loss(nodes, runner)
            if runner.cancelled():
                ticket.done.cancel()
            elif ticket.done.done():
                runner.exception()  # nobody waits for it any more
            elif (error := runner.exception()) is None:
                ticket.done.set_result(runner.result())
            elif isinstance(error, NodeLost) and ticket.losses + 1 < MOST_RUNS:
                self._run_again(ticket)
            else:
                ticket.done.set_exception(error)
            self._make_idle(nodes)

        ticket.runner.add_done_callback(ended)

    def _note_loss(self, nodes: list[str], runner: asyncio.Task[Any]) -> None:
        """If a node has failed under a task, required or spare: the journal has it as no longer held."""
        if runner.cancelled() or not isinstance(loss := runner.exception(), NodeLost):
            return
        self._loss = loss
        gone = [node for node in (*nodes, *self._idle) if node not in self.lease.nodes]
        self._idle = [node for node in self._idle if node in self.lease.nodes]
        if gone:
            self._cluster.record(Shrunk(lease=self.lease.id, nodes=gone, lost=True))

    def _run_again(self, ticket: Ticket) -> None:
        """Put work whose node has failed first in line, and see that it has enough nodes."""
        ticket.runner = None
        ticket.losses += 1
        self._waiting.appendleft(ticket)

    def _ask_for_replacement(self, missing: int) -> None:
        self._replacing = self._cluster.request(missing, missing, lease=self.lease)
        self._cluster.record(Requested(lease=self.lease.id, nodes=missing, grow=True))
        asyncio.ensure_future(self._replace(self._replacing))

    async def _replace(self, request: Request) -> None:
        """No transition: a release waits for the work, and the work for this."""
        cancel = self._world.clock.deadline(REPLACEMENT_S, lambda: self._world.withdraw(request))
        loss, gained = self._loss, 0
        try:
            gained = await self._take_more(request)
        finally:
            cancel()
            self._replacing = None
            if not gained and loss is not None:
                self._give_up(loss)
            self._notify()
            self.dispatch()

    def _give_up(self, loss: NodeLost) -> None:
        """No node came in the place of one that failed: what cannot do without it has failed, too."""
        for ticket in [ticket for ticket in self._waiting if ticket.work.task.nodes > len(self.lease.nodes)]:
            self._waiting.remove(ticket)
            ticket.done.set_exception(loss)

    def _start_spare(self, work: Work, node: str) -> None:
        runner = asyncio.ensure_future(self._cluster.execute([node], work, self.lease, spare=True))
        self._spare[node] = (work, runner)
        self._started += 1

        def ended(runner: asyncio.Task[Any]) -> None:
            del self._spare[node]
            self._note_loss([node], runner)
            if runner.cancelled():
                self._cluster.spare.put_back(work)
            elif runner.exception() is not None:
                self._cluster.spare.forget(work)  # if it is needed it runs as required work, and fails in plain sight
            else:
                self._cluster.spare.finish(work, runner.result())
            self._make_idle([node])

        runner.add_done_callback(ended)

    def drop_spare(self, count: int) -> int:
        """Free nodes for required work; work that somebody waits for by now is required too. Returns how many."""
        dropped = 0
        for work, runner in list(self._spare.values()):
            if dropped >= count:
                break
            if self._cluster.spare.is_wanted(work):
                continue
            if not runner.cancelling():
                runner.cancel()
            dropped += 1
        return dropped

    def _make_idle(self, nodes: list[str]) -> None:
        held = self.lease.nodes
        if self._loss is None and len(self._idle) + len(nodes) == len(held):
            self._idle = list(held)
        else:
            idle = dict.fromkeys((*self._idle, *nodes))
            self._idle = [node for node in held if node in idle]
        self._keep_to_what_was_asked()
        self._notify()
        self.dispatch()
        self._note_idle()

    async def wait_idle(self, for_s: float) -> None:
        """Wait until no work, spare work included, has run here for `for_s` seconds; may return `for_s` late."""
        started = -1
        while started != self._started:
            while not self.is_idle:
                await self._wait_change()
            started = self._started
            await self._world.clock.sleep(for_s)

    async def _wait_change(self) -> None:
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    # Giving back what is not used, while the job waits in line (`qloom.job.unused`)

    def _note_idle(self) -> None:
        if self.is_idle:
            self._idle_since_us = self._world.clock.now_us()
            self._cluster.unused.look()

    @property
    def nodes_unused_since_us(self) -> int | None:
        """Since when nothing has run here; None if something does, or there is nothing to give back."""
        is_changing = self._closing or self._parked is not None or self._resizing.locked()
        return None if is_changing or not self.is_idle or not self.lease.nodes else self._idle_since_us

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

        self._giving = asyncio.ensure_future(give_back())

    @property
    def is_parked(self) -> bool:
        """Whether its nodes were given back and nobody has asked for them again."""
        return self._parked is not None and self._returning is None

    @property
    def size(self) -> int:
        """How many nodes it has, or had when they were given back."""
        return len(self.lease.nodes) if self._parked is None else self._parked

    async def _park(self) -> None:
        self._parked, self._idle = len(self.lease.nodes), []
        if self.session is not None:
            await self.session.close()
            self.session = None
        engine_us = await self._world.free(self.lease)
        self._cluster.record(Released(lease=self.lease.id, engine_us=engine_us, reason=UNUSED))

    def _come_back_for_work(self, nodes: int) -> None:
        for ticket in [ticket for ticket in self._waiting if ticket.work.task.nodes > nodes]:
            self._waiting.remove(ticket)
            ticket.done.set_exception(_too_large(ticket.work, nodes))
        if self._waiting:
            self.come_back()

    def come_back(self) -> None:
        """Ask again for as many nodes as were given back."""
        if self._parked is not None and self._returning is None and self._transition is None:
            self._returning = self._cluster.request(self._parked, self._parked)
            self._giving = asyncio.ensure_future(self._return(self._returning))

    async def _return(self, request: Request) -> None:
        lease: Lease | None = None
        try:
            lease = await self._cluster.ask_again(request)
        except QloomError as failure:
            for ticket in self._waiting:
                ticket.done.set_exception(failure)
            self._waiting.clear()
        finally:
            self._returning = None
            if lease is not None:
                self.lease, self._parked = lease, None
                self._idle, self._first = list(lease.nodes), dict.fromkeys(lease.nodes)
            self._notify()
            self.dispatch()
            self._note_idle()

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
        request = self._cluster.request(least_nodes=1, most_nodes=missing, lease=self.lease)
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
        self._idle.extend(gained)
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
        while len(self._idle) < count and self._spare:
            self.drop_spare(count - len(self._idle))
            if not any(runner.cancelling() for _work, runner in self._spare.values()):
                break  # what is left has become required meanwhile
            await self._wait_change()
        kept = max(0, len(self._idle) - count)
        nodes, self._idle = self._idle[kept:], self._idle[:kept]
        if nodes:
            await self._drop(nodes)

    async def _drop(self, nodes: list[str]) -> None:
        engine_us = await self._world.drop_nodes(self.lease, nodes)
        still_held = dict.fromkeys(self.lease.nodes)
        self._idle.extend(node for node in nodes if node in still_held)  # the engine refused
        given = [node for node in nodes if node not in still_held]
        if given:
            self._cluster.record(Shrunk(lease=self.lease.id, nodes=given, engine_us=engine_us))

    def _keep_to_what_was_asked(self) -> None:
        """A task has ended: give idle nodes back if a scheduler wants them, and no task that waits needs them."""
        asked = self._world.asked_nodes(self.lease)
        if asked is None or self._closing:
            return
        keep = max(asked, *(ticket.work.task.nodes for ticket in self._waiting), 1)
        count = min(len(self.nodes) - keep, len(self._idle))
        if count > 0:
            if not self._leaving:
                asyncio.ensure_future(self._leave())
            self._leaving += self._idle[-count:]
            del self._idle[-count:]

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
            self.drop_spare(len(self._spare))
            await self._wait_change()
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
        self._transition = asyncio.ensure_future(transition)
        try:
            return await asyncio.shield(self._transition)
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
