"""Structured concurrency for asyncio, in real and in virtual time: every task has an owner that outlives it.

- Tasks that begin and end in one function belong to an `asyncio.TaskGroup`, or to `gather_or_cancel` if its callers
  expect the first failure itself instead of a group.
- Tasks that an object starts now and ends later belong to its `TaskScope`.
- Work that must reach its end although its caller may be cancelled goes through `finish` or `run_to_end`.

Nothing here knows what the tasks do, and nothing depends on the order of a set: the same calls run in the same order.
"""

from __future__ import annotations

import asyncio
import functools
import types
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


class TaskScope:
    """Owns the tasks of a long-lived object. `aclose` cancels what still runs and returns when all of it has ended.

    No failure is lost: one of a `start`ed task reaches whoever awaits that task; one of a `spawn`ed task is passed to
    `on_failure` at once or, without it, raised by `aclose`.
    """

    __slots__ = ("_failures", "_is_closed", "_on_failure", "_room", "_tasks")

    def __init__(self, on_failure: Callable[[BaseException], None] | None = None) -> None:
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._failures: list[BaseException] = []
        self._is_closed = False
        self._room = 16  # how many tasks are kept before those that have ended are forgotten

    def __len__(self) -> int:
        """How many tasks have not ended."""
        self._forget_ended()
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task whose result or failure somebody awaits."""
        if self._is_closed:
            work.close()
            raise RuntimeError("the owner of this task has been closed")
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        if len(self._tasks) > self._room:
            self._forget_ended()
        return task

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task in the background, which nobody has to await."""
        task = self.start(work)
        task.add_done_callback(self._note_failure)
        return task

    def _forget_ended(self) -> None:
        """Now and then, instead of a callback for each task: starting one costs little more than without a scope."""
        self._tasks = {task: None for task in self._tasks if not task.done()}
        self._room = 2 * len(self._tasks) + 16

    def _note_failure(self, ended: asyncio.Task[Any]) -> None:
        if ended.cancelled() or (failure := ended.exception()) is None:
            return
        if self._on_failure is not None:
            self._on_failure(failure)
        else:
            self._failures.append(failure)

    async def join(self) -> None:
        """Wait until no task is left, those included that are started meanwhile; raise what failed in `spawn`."""
        while len(self):
            await asyncio.wait(list(self._tasks))
        await asyncio.sleep(0)  # lets the callbacks above run
        self._raise_failures()

    async def aclose(self) -> None:
        """Cancel all tasks and wait until they have ended, even if the caller is cancelled meanwhile."""
        calling = asyncio.current_task()
        asked: dict[asyncio.Task[Any], None] = {}
        cancelled: asyncio.CancelledError | None = None
        while left := [task for task in self._tasks if task is not calling and not task.done()]:
            for task in left:
                if task not in asked:  # once: one that is cleaning up is left to it
                    asked[task] = None
                    task.cancel()
            try:
                await asyncio.wait(left)
                await asyncio.sleep(0)  # lets the callbacks above run
            except asyncio.CancelledError as error:
                cancelled = error
        self._is_closed = True
        self._tasks.clear()
        if cancelled is None:
            self._raise_failures()
            return
        for failure in self._failures:
            report_failure(failure)
        raise cancelled

    def _raise_failures(self) -> None:
        failures, self._failures = self._failures, []
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise BaseExceptionGroup("several tasks failed", failures)


async def finish(future: asyncio.Future[Any], *, cancel: bool = False) -> None:
    """Wait until a future is done, even if the caller is cancelled meanwhile; then that cancellation is raised.

    The outcome of the future is left to whoever looks at it. With `cancel` the future is cancelled first.
    """
    if cancel:
        future.cancel()
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await done(future)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, even if the caller is cancelled meanwhile; then that cancellation is raised."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        await finish(task)
    except asyncio.CancelledError:
        if not task.cancelled() and (failure := task.exception()) is not None:
            report_failure(failure)
        raise
    return task.result()


async def outcome_of(task: asyncio.Future[T]) -> T:
    """Wait for a task that must not be cancelled with the caller: `asyncio.shield`, with fewer turns of the loop."""
    if not task.done():
        await done(task)
    return task.result()


def done(future: asyncio.Future[Any]) -> asyncio.Future[None]:
    """Wait until a future is done, without a claim to its outcome: cancelling this leaves it alone."""
    waiter: asyncio.Future[None] = future.get_loop().create_future()
    future.add_done_callback(functools.partial(_wake, waiter))
    return waiter


def _wake(waiter: asyncio.Future[None], _future: asyncio.Future[Any]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def gather_or_cancel(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines side by side: the results of all, or the first failure once the others have been cancelled."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await finish(asyncio.gather(*tasks, return_exceptions=True))


def where_tasks_wait(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Report for each task of a loop the functions that it waits in, outermost first; may be called in any thread."""
    return sorted(_where(task) for task in asyncio.all_tasks(loop))


def _where(task: asyncio.Task[Any]) -> str:
    places: list[str] = []
    waiting: object = task.get_coro()
    while isinstance(waiting, types.CoroutineType) and waiting.cr_frame is not None:
        places.append(f"{waiting.__qualname__}:{waiting.cr_frame.f_lineno}")
        waiting = waiting.cr_await
    return " > ".join(places) or task.get_name()


def report_failure(failure: BaseException) -> None:
    """Pass a failure to the loop's exception handler: its caller was cancelled or failed, and raises that instead."""
    context = {"message": "ending what was cancelled or has failed raised another error", "exception": failure}
    asyncio.get_running_loop().call_exception_handler(context)
