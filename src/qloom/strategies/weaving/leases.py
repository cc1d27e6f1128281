"""The nodes that a job asks for and holds, in leases that take work from the job's line as long as there is some."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from qloom.aio import TaskScope
from qloom.model import Need, Work
from qloom.ports import Allocation, Cluster
from qloom.strategies.weaving.account import IdleAccount
from qloom.strategies.weaving.expected import Coming, Expected, PhaseOrder, nodes_filled

MOMENT_S = 0.001
POLL_S = 0.5
REQUIRED, EARLY, SPARE = "required", "early", "spare"  # what nodes are asked for


@dataclass(eq=False)
class _Lease:
    nodes: int
    why: str
    granted: bool = False
    of_last_offer: bool = False  # asked for because of the spare work that was offered last


class Leases:
    """Each lease is a task that asks for nodes, keeps them while there is work for them, and gives them back."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: int,
        expected: Expected,
        order: PhaseOrder,
        *,
        per_task: bool,
        linger_s: float,
        crowded_s: float,
    ) -> None:
        self.failure: BaseException | None = None  # of a lease: what its work ended with
        self._cluster = cluster
        self._most_nodes = nodes
        self._expected = expected
        self._order = order
        self._per_task = per_task  # or else all are kept until the phase is done
        self._linger_s = linger_s
        self._crowded_s = crowded_s
        self._tasks = TaskScope()
        self._leases: dict[asyncio.Task[None], _Lease] = {}  # in the order in which they were asked for
        self._most_spare = 0  # how many pieces of spare work may run at once
        self._spare_nodes = 0  # how many nodes the spare work that was offered last can use
        self._spare_is_held_up = False  # a node came for spare work and none began: ask again only after a change
        self._runs: dict[asyncio.Future[Any], Work] = {}  # of the classical phases under way
        self._longest_s = 0.0  # of their tasks, or else of the last ones
        self._kept: list[_Lease] = []  # idle, until a quantum phase ends
        self._working = asyncio.Event()  # there are some
        self._changed: asyncio.Event | None = None  # made when somebody waits until a task may have begun
        self._account = IdleAccount()
        self._ended = False

    # Work

    def run(self, tasks: Sequence[Work]) -> list[asyncio.Future[Any]]:
        """Put the tasks in the job's line, longest first, and ask for as many nodes as they can use."""
        runs = {}
        if not self._runs:
            self._longest_s = 0.0
        for work in self._expected.longest_first(tasks):
            run = runs[work.id] = self._cluster.run(work)
            self._runs[run] = work
            run.add_done_callback(self._run_ended)
        self._working.set()
        self._longest_s = max(self._longest_s, *(self._expected.task_s(work) for work in tasks))
        for lease in self._leases.values():
            if lease.why == EARLY:
                lease.why = REQUIRED
        self._spare_is_held_up = False
        self._adjust()
        return [runs[work.id] for work in tasks]

    def _run_ended(self, run: asyncio.Future[Any]) -> None:
        del self._runs[run]
        if not self._runs:
            self._working.clear()
        self._spare_is_held_up = False
        self._adjust()

    async def begun(self, work: Work) -> None:
        """Wait until a task has left the line."""
        while any(waiting.id == work.id for waiting in self._cluster.waiting):
            if self._changed is None:
                self._changed = asyncio.Event()
            await self._changed.wait()

    # What is asked for

    def ask_early(self, coming: Sequence[Coming], idle_s: float, reason: str) -> None:
        """Ask for the nodes of tasks that will come; one that is there before them may idle for so long."""
        narrow_s = [task.seconds for task in coming if task.nodes == 1]
        filled = nodes_filled(narrow_s, max(narrow_s)) if narrow_s else 0
        for nodes in [task.nodes for task in coming if task.nodes > 1] + [1] * (filled - len(self._kept)):
            self._ask(nodes, EARLY, reason, idle_s)

    def run_spare(self, tasks: Sequence[Work], nodes: int, most: int) -> None:
        """Put spare work on idle nodes, `most` at once; ask for `nodes` for it as long as no required work waits."""
        self._most_spare = most
        self._fill_idle_nodes(tasks)
        waiting = [work.id for work in self._cluster.spare_waiting]
        for lease in self._leases.values():
            lease.of_last_offer &= not lease.granted
        self._spare_nodes = nodes - sum(work.id not in waiting for work in tasks)
        self._spare_is_held_up = False
        self._adjust()

    def stop_spare(self) -> None:
        """Begin no spare work, also none that was offered before and waits or was dropped."""
        self._most_spare = 0
        self._fill_idle_nodes()
        self._adjust()

    def _fill_idle_nodes(self, spare: Sequence[Work] = ()) -> None:
        self._cluster.fill_idle_nodes(spare, most=self._most_spare, give_way=True)

    def _adjust(self) -> None:
        """Ask for what the waiting work needs; leave the line where it has found nodes elsewhere."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None
        if self._ended:
            return
        waiting = self._cluster.waiting
        not_begun = [work.id for work in waiting]
        self._account.ran.count(sum([work.task.nodes for work in self._runs.values() if work.id not in not_begun]))
        room = max(0, self._most_spare - self._cluster.spare_running)
        spare = min(len(self._cluster.spare_waiting), room)
        missing = self._missing(waiting)
        for task, lease in list(self._leases.items()):
            if lease.granted or task.cancelling():
                continue
            if lease.why == SPARE:
                spare -= 1
                surplus = spare < 0 or bool(waiting)
            elif lease.nodes in missing:
                missing.remove(lease.nodes)
                surplus = False
            else:
                surplus = lease.why == REQUIRED
            if surplus:
                task.cancel()
        blocked = [nodes for nodes in missing if not self._ask(nodes, REQUIRED)]
        if blocked:
            self._cluster.drop_spare(sum(blocked))  # the job holds all that it may
        elif spare > 0 and not waiting and not self._spare_is_held_up:
            asked = sum(lease.of_last_offer for lease in self._leases.values())
            wanted = max(self._spare_nodes - asked, 0 if self._leases else 1)
            for _ in range(min(spare, wanted)):
                self._ask(1, SPARE)

    def _missing(self, waiting: Sequence[Work]) -> list[int]:
        """Nodes of leases that the required work needs beside what runs: short tasks share a node."""
        if not waiting:
            return []
        wide = [work.task.nodes for work in waiting if work.task.nodes > 1]
        narrow = [work for work in self._runs.values() if work.task.nodes == 1]
        running = len(narrow) - sum(work.task.nodes == 1 for work in waiting)
        filled = self._expected.nodes_filled(narrow, self._longest_s if self._per_task else 0.0)
        return wide + [1] * (min(self._most_nodes, filled) - running)

    def _ask(self, nodes: int, why: str, reason: str | None = None, idle_s: float | None = None) -> bool:
        """Begin a lease, unless the job would hold too much."""
        if sum(lease.nodes for lease in self._leases.values()) + nodes > self._most_nodes:
            return False
        lease = _Lease(nodes, why, of_last_offer=why == SPARE)
        task = self._tasks.start(self._hold(lease, reason, idle_s))
        self._leases[task] = lease
        task.add_done_callback(self._lease_ended)
        return True

    # What is held

    async def _hold(self, lease: _Lease, reason: str | None, idle_s: float | None) -> None:
        held = await self._cluster.allocate(Need(nodes=lease.nodes), spare=lease.why == SPARE, reason=reason)
        lease.granted = True
        assert held is not None  # noqa: S101  there was no time limit
        async with held:
            await self._keep_busy(held, lease, idle_s)

    async def _keep_busy(self, held: Allocation, lease: _Lease, idle_s: float | None) -> None:
        """Return when there is no work for these nodes."""
        if lease.why == SPARE and held.is_idle:
            self._spare_is_held_up = True
        self._adjust()
        if idle_s is not None:
            with suppress(TimeoutError), self._account.idled.counting(lease.nodes):
                async with asyncio.timeout(min(idle_s, self._account.left_s(lease.nodes))):
                    await self._working.wait()
        await held.wait_idle(0.0)
        self._adjust()  # a task that began here may be asked for elsewhere, and spare work gives way to that
        await held.wait_idle(self._linger_s)
        while self._runs and not self._per_task and not self._is_in_the_way(lease):
            await held.wait_idle(self._linger_s)
        while self._order.in_quantum and not self._is_in_the_way(lease):
            if not await self._work_comes_in_time(lease):
                break
            await held.wait_idle(self._linger_s)

    def _is_in_the_way(self, lease: _Lease) -> bool:
        """Whether all work that waits is too wide for it: kept, it is one of the nodes that this work waits for."""
        waiting = self._cluster.waiting
        return bool(waiting) and all(work.task.nodes > lease.nodes for work in waiting)

    async def _work_comes_in_time(self, lease: _Lease) -> bool:
        """Keep idle nodes in a quantum phase for as long as that is worth it; whether there was work by then."""
        self._kept.append(lease)
        kept_s, pause_s = 0.0, POLL_S
        try:
            while (more_s := self._worth_keeping_s(lease, kept_s)) > MOMENT_S:
                wait_s = min(pause_s, more_s)
                with suppress(TimeoutError), self._account.idled.counting(lease.nodes):
                    async with asyncio.timeout(wait_s):
                        return await self._working.wait()
                kept_s += wait_s
                pause_s *= 2
            return False
        finally:
            self._kept.remove(lease)

    def _worth_keeping_s(self, lease: _Lease, kept_s: float) -> float:
        """How much longer to keep it.

        A phase that is shorter than getting a node again is too short to let go. On a crowded cluster waits have a
        long tail, so one node is kept for as long as they are on average, unless the phase is known to take longer:
        that costs at most twice what the better of keeping it and giving it back would. Where the wait for the QPU
        makes phases longer than that, kept nodes would only make nodes scarcer.
        """
        left, average_s = self._expected.quantum_left(), self._expected.average_node_wait_s()
        is_crowded = average_s > max(self._crowded_s, self._longest_s, self._expected.average_quantum_s())
        is_the_one = self._kept[0] is lease and lease.nodes == 1
        if is_crowded and is_the_one and (left is None or left.value <= average_s):
            return average_s - kept_s
        if left is not None and left.value <= self._expected.node_wait_s():
            return min(left.value + self._linger_s, self._account.left_s(lease.nodes))
        return 0.0

    def _lease_ended(self, task: asyncio.Task[None]) -> None:
        lease = self._leases.pop(task)
        if not lease.granted and not self._ended and self._cluster.spare_waiting:
            self._fill_idle_nodes()  # spare work has given way to this request
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()
            for run in list(self._runs):
                run.cancel()
        self._adjust()

    def end(self) -> list[asyncio.Task[None]]:
        """Give everything back; what is returned has to be waited for."""
        self._ended = True
        for lease in self._leases:
            lease.cancel()
        return list(self._leases)
