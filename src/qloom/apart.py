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

_cancels: dict[int, Callable[[], object]] = {}  # by thread: how to cancel what its loop runs


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
        _cancel(thread)
        thread.join()
        raise


async def wait_apart(function: Callable[[], T]) -> T:
    """Call such a function in a thread, and let this loop go on meanwhile."""
    thread, outcome = _start(function)
    waiting = asyncio.wrap_future(outcome)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        _cancel(thread)
        await asyncio.wait([waiting])
        waiting.exception()  # seen
        raise


def let_cancel(task: asyncio.Task[Any]) -> None:
    """Let whoever waits for this thread cancel the main task of its loop."""
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    _cancels[thread] = lambda: loop.call_soon_threadsafe(task.cancel)
    task.add_done_callback(lambda _: _cancels.pop(thread, None))


def _start(function: Callable[[], T]) -> tuple[threading.Thread, Future[T]]:
    outcome: Future[T] = Future()
    context = contextvars.copy_context()

    def main() -> None:
        try:
            outcome.set_result(context.run(function))
        except asyncio.CancelledError:
            outcome.set_exception(KeyboardInterrupt())  # it was cancelled because of one
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=main, name="qloom-run", daemon=True)
    thread.start()
    return thread, outcome


def _cancel(thread: threading.Thread) -> None:
    cancel = _cancels.get(thread.ident or 0)
    if cancel is not None:
        cancel()
