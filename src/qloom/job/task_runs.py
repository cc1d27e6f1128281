"""Tasks of one job as the world runs them: each attempt begins and ends in the journal.

Who waits for nodes, and what a failure means for the rest, is decided by the allocation (`allocation.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from qloom.aio import TaskScope
from qloom.errors import AllocationEnded, NodeLost, TaskFailed
from qloom.job.unused import UnusedRule
from qloom.journal.events import TaskEnded, TaskStarted
from qloom.journal.file import Recorder
from qloom.model import Task, Work
from qloom.world import Lease, Ran, Running, World


class TaskRun(asyncio.Future[Any]):
    """Required work that waits for nodes, or runs: the future of its result. Cancelling it kills the task.

    `abandon` is called if it is cancelled while it waits.
    """

    __slots__ = ("abandon", "failures", "losses", "runner", "work")

    def __init__(self, work: Work, abandon: Callable[[TaskRun], None]) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.work = work
        self.abandon = abandon
        self.runner: asyncio.Future[Ran] | None = None
        self.losses = 0  # nodes that failed under it
        self.failures = 0  # of its own, on the nodes that it has

    def cancel(self, msg: Any | None = None) -> bool:
        """Kill the task, or give it up before it has begun."""
        if not super().cancel(msg):
            return False
        self.get_loop().call_soon(self._give_up)  # not at once: the caller may be about to cancel others too
        return True

    def _give_up(self) -> None:
        if self.runner is None:
            self.abandon(self)
        else:
            self.runner.cancel()


@dataclass(slots=True)
class SpareRun:
    """Spare work that runs on a node."""

    work: Work
    runner: asyncio.Future[Ran]
    is_dropped: bool = False


def is_tried_again(work: Work, failure: BaseException | None, failures: int) -> bool:
    """Whether a task that failed for a reason of its own is run again, on the nodes that it has."""
    return failures < work.task.retries and isinstance(failure, TaskFailed) and not isinstance(failure, NodeLost)


class TaskExecutor:
    """Starts the tasks of one job, and records what comes of them."""

    def __init__(self, world: World, recorder: Recorder, unused: UnusedRule, tasks: TaskScope) -> None:
        self._world = world
        self._recorder = recorder
        self._unused = unused
        self._tasks = tasks

    def start(self, nodes: Sequence[str], work: Work, lease: Lease, *, spare: bool = False) -> asyncio.Future[Ran]:
        """Start a task in the world; `end` is to be called when the future is done."""
        self._unused.runs(work.id)
        self._recorder.record(TaskStarted(work=work.id, name=work.task.name, nodes=list(nodes), spare=spare))
        running = self._world.execute(nodes, work, lease)
        if work.task.time_limit_s is not None:
            running = self._within_limit(running, work.task)
        return running if isinstance(running, asyncio.Future) else self._tasks.start(running)

    def end(self, work: Work, ended: asyncio.Future[Ran]) -> BaseException | None:
        """Record how a task has ended, and keep its result; returns why there is none."""
        if ended.cancelled():
            self._recorder.record(TaskEnded(work=work.id, state="dropped"))
            return asyncio.CancelledError()
        error = ended.exception()
        if error is None:
            ran = ended.result()
            try:
                kept = self._recorder.keep(ran.result)
            except Exception as unkept:
                error = unkept
            else:
                self._recorder.record(TaskEnded(work=work.id, state="done", result=kept, seconds=ran.seconds))
                return None
        if not isinstance(error, TaskFailed | AllocationEnded):
            error = TaskFailed(f"task {work.task.name}: {error}")
        error.job = work.job
        self._recorder.record(TaskEnded(work=work.id, state="failed", error=error.message))
        self._unused.waits(work.id)  # whoever asked for it may have it run again
        return error

    async def _within_limit(self, running: Running, task: Task) -> Ran:
        """Kill the task when it has run for longer than its time limit."""
        limit_s = task.time_limit_s or 0.0
        scope = TaskScope()
        started = running if isinstance(running, asyncio.Future) else scope.start(running)
        expired: list[bool] = []

        def expire() -> None:
            expired.append(started.cancel())

        cancel = self._world.clock.deadline(limit_s, expire)
        caller = asyncio.current_task()
        try:
            return await started
        except asyncio.CancelledError:
            if not any(expired) or (caller is not None and caller.cancelling()):
                raise
            raise TaskFailed(
                f"task {task.name} was killed at its time limit of {limit_s:g} s", hint="raise its time_limit_s"
            ) from None
        finally:
            cancel()
            await scope.aclose()
