"""Work on the nodes of one lease: what waits for them, what runs on them, and which of them are idle.

When required work is put on nodes, spare work is dropped, and nodes are given back is decided by the allocation
(`allocation.py`), which is called when nodes have become idle.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from qloom.errors import NodeLost
from qloom.job.task_runs import SpareRun, TaskRun, is_tried_again
from qloom.journal.events import Shrunk
from qloom.model import Work
from qloom.world import Lease, Ran

if TYPE_CHECKING:
    from qloom.job.cluster import JobCluster

MOST_RUNS = 3  # of a task whose nodes fail


class NodeWork:
    """The work of one allocation. `freed` is called when a task has ended and its nodes are idle."""

    def __init__(self, cluster: JobCluster, lease: Lease, freed: Callable[[], None]) -> None:
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._unused = cluster.unused
        self._freed = freed
        self.lease = lease
        self.idle = list(lease.nodes)
        self.waiting: deque[TaskRun] = deque()
        self._running: dict[TaskRun, None] = {}
        self.spare: dict[str, SpareRun] = {}  # node -> what runs there meanwhile
        self._started = 0  # tasks so far
        self._changed: asyncio.Event | None = None  # made when somebody waits for a change
        self.loss: NodeLost | None = None  # the last one: work that is too wide since then asks for another node
        self.idle_since_us = self._clock.now_us()

    def move_to(self, lease: Lease) -> None:
        """Go on with the nodes of another lease; nothing runs now."""
        self.lease, self.idle = lease, list(lease.nodes)

    @property
    def busy_nodes(self) -> int:
        """How many nodes run required work, or are promised to it."""
        awaited = sum(1 for spare in self.spare.values() if self._cluster.spare.is_wanted(spare.work))
        return awaited + sum(run.work.task.nodes for run in (*self._running, *self.waiting))

    @property
    def is_idle(self) -> bool:
        """Whether no work, spare work included, runs or waits here."""
        return not (self.waiting or self._running or self.spare)

    def start(self, run: TaskRun) -> None:
        """Put required work on the first idle nodes."""
        count = run.work.task.nodes
        nodes, self.idle = self.idle[:count], self.idle[count:]
        self._running[run] = None
        self._started += 1
        self._attempt(run, nodes)

    def _attempt(self, run: TaskRun, nodes: list[str]) -> None:
        run.runner = self._cluster.executor.start(nodes, run.work, self.lease)
        run.runner.add_done_callback(functools.partial(self._task_ended, run, nodes))

    def _task_ended(self, run: TaskRun, nodes: list[str], runner: asyncio.Future[Ran]) -> None:
        failure = self._cluster.executor.end(run.work, runner)
        if is_tried_again(run.work, failure, run.failures):
            run.failures += 1
            self._attempt(run, nodes)
            return
        del self._running[run]
        if isinstance(failure, NodeLost):
            self._note_loss(nodes, failure)
        if runner.cancelled():
            run.cancel()
        elif run.done():
            pass  # nobody waits for it any more
        elif failure is None:
            run.set_result(runner.result().result)
        elif isinstance(failure, NodeLost) and run.losses + 1 < MOST_RUNS:
            self._run_again(run)
        else:
            run.set_exception(failure)
        self._make_idle(nodes)

    def _note_loss(self, nodes: list[str], loss: NodeLost) -> None:
        """A node has failed under a task, required or spare: the journal has it as no longer held."""
        self.loss = loss
        gone = [node for node in (*nodes, *self.idle) if node not in self.lease.nodes]
        self.idle = [node for node in self.idle if node in self.lease.nodes]
        if gone:
            self._cluster.record(Shrunk(lease=self.lease.id, nodes=gone, lost=True))

    def _run_again(self, run: TaskRun) -> None:
        """Put work whose node has failed first in line, and see that it has enough nodes."""
        run.runner = None
        run.losses += 1
        run.failures = 0
        self.waiting.appendleft(run)

    def start_spare(self, work: Work) -> None:
        """Put spare work on the first idle node."""
        self._started += 1
        self._attempt_spare(work, self.idle.pop(0), 0)

    def _attempt_spare(self, work: Work, node: str, failures: int) -> None:
        runner = self._cluster.executor.start([node], work, self.lease, spare=True)
        self.spare[node] = SpareRun(work, runner)
        runner.add_done_callback(functools.partial(self._spare_ended, work, node, failures))

    def _spare_ended(self, work: Work, node: str, failures: int, runner: asyncio.Future[Ran]) -> None:
        failure = self._cluster.executor.end(work, runner)
        if is_tried_again(work, failure, failures):
            self._attempt_spare(work, node, failures + 1)
            return
        del self.spare[node]
        if isinstance(failure, NodeLost):
            self._note_loss([node], failure)
        if runner.cancelled():
            self._cluster.spare.put_back(work)
        elif failure is not None:
            self._cluster.spare.forget(work)  # if it is needed it runs as required work, and fails in plain sight
        else:
            self._cluster.spare.finish(work, runner.result().result)
        self._make_idle([node])

    def drop_spare(self, count: int) -> int:
        """Free nodes for required work; work that somebody waits for by now is required too. Returns how many."""
        dropped = 0
        for spare in list(self.spare.values()):
            if dropped >= count:
                break
            if self._cluster.spare.is_wanted(spare.work):
                continue
            if not spare.is_dropped:
                spare.is_dropped = spare.runner.cancel()
            dropped += 1
        return dropped

    def _make_idle(self, nodes: list[str]) -> None:
        held = self.lease.nodes
        if self.loss is None and len(self.idle) + len(nodes) == len(held):
            self.idle = list(held)
        else:
            idle = dict.fromkeys((*self.idle, *nodes))
            self.idle = [node for node in held if node in idle]
        self._freed()

    async def wait_idle(self, for_s: float) -> None:
        """Wait until no work, spare work included, has run here for `for_s` seconds from now on."""
        clock, left_s = self._clock, for_s
        started = -1
        while started != self._started:
            while not self.is_idle:
                await self.wait_change()
                left_s = for_s - (clock.now_us() - self.idle_since_us) / 1e6
            started = self._started
            await clock.sleep(max(0.0, left_s))
            left_s = for_s - (clock.now_us() - self.idle_since_us) / 1e6

    async def wait_change(self) -> None:
        """Wait until something has ended, come or gone here."""
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def notify(self) -> None:
        """Wake those who wait for a change."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def note_idle(self) -> None:
        """Note the time if no work is left."""
        if self.is_idle:
            self.idle_since_us = self._clock.now_us()
            self._unused.look()

    def fail_waiting(self, failure: Callable[[TaskRun], Exception], *, wider_than: int = 0) -> None:
        """Fail the required work that waits and needs more than so many nodes."""
        for run in [run for run in self.waiting if run.work.task.nodes > wider_than]:
            self.waiting.remove(run)
            if not run.done():
                run.set_exception(failure(run))
