"""Runs a function that needs an event loop of its own where one runs already, as in a notebook: in a thread.

Whoever waits may be interrupted (Ctrl-C, a cancelled task). Then the run in the thread is cancelled and gives back
what it holds, and only then does the caller see the interruption.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


def run_apart(function: Callable[[], T]) -> T:
    """Call a function that runs an event loop: here, or in a thread if this thread has a loop that runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return function()
    thread, outcome = _start(function)
    try:
        return outcome.result()
    except KeyboardInterrupt:
        thread.cancel()
        thread.join()
        raise


async def wait_apart(function: Callable[[], T]) -> T:
    """Call such a function in a thread, and let this loop go on meanwhile."""
    thread, outcome = _start(function)
    waiting = asyncio.wrap_future(outcome)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        thread.cancel()
        await asyncio.wait([waiting])
        waiting.exception()  # seen
        raise


def let_cancel(task: asyncio.Task[Any]) -> None:
    """Let whoever waits for this thread cancel the main task of its loop."""
    thread = threading.current_thread()
    if isinstance(thread, _RunThread):
        thread.let_cancel(task)


class _RunThread(threading.Thread):
    """The thread of a run. A `cancel` that comes before its loop has begun is kept until then."""

    def __init__(self, main: Callable[[], None]) -> None:
        super().__init__(target=main, name="qloom-run", daemon=True)
        self._lock = threading.Lock()
        self._cancel_loop: Callable[[], object] | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        """Cancel what the thread runs."""
        with self._lock:
            self._is_cancelled = True
            if self._cancel_loop is not None:
                self._cancel_loop()

    def let_cancel(self, task: asyncio.Task[Any]) -> None:
        """Have `cancel` cancel this task of the thread's loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._cancel_loop = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._is_cancelled:
                task.cancel()
        task.add_done_callback(self._forget)

    def _forget(self, _task: asyncio.Task[Any]) -> None:
        with self._lock:
            self._cancel_loop = None


def _start(function: Callable[[], T]) -> tuple[_RunThread, Future[T]]:
    outcome: Future[T] = Future()
    context = contextvars.copy_context()

    def main() -> None:
        try:
            outcome.set_result(context.run(function))
        except asyncio.CancelledError:
            outcome.set_exception(KeyboardInterrupt())  # it was cancelled because of one
        except BaseException as error:
            outcome.set_exception(error)

    thread = _RunThread(main)
    thread.start()
    return thread, outcome
