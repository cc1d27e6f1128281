"""Synchronous functions on the event loop: they wait for coroutines without a thread.

The function runs on a greenlet whose parent is the coroutine that drives it. `wait` switches to that coroutine with
an awaitable; the coroutine awaits it and switches back with the result, or throws the exception into the function. So
a synchronous program works in virtual time, is deterministic and can be cancelled. This module knows no job.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

from greenlet import GreenletExit, getcurrent, greenlet

from qloom.errors import InputError

T = TypeVar("T")
FROM_ASYNC = "in an async function, await the calls of a job; a synchronous program is a plain def"
FROM_THREAD = "make calls of a job in the thread that runs the program"


class _SyncGreenlet(greenlet):  # type: ignore[misc]  # it comes without types
    """A greenlet that a synchronous function runs on; its parent awaits what the function waits for."""


async def run_sync(function: Callable[[], T], turn: AbstractContextManager[None] = nullcontext()) -> T:
    """Call a synchronous function that may `wait`, without blocking the loop while it does.

    `turn` is entered whenever the function runs, and left whenever it waits.
    """
    inner = _SyncGreenlet(function)
    inner.gr_context = contextvars.copy_context()
    with turn:
        switched: Any = inner.switch()
    while not inner.dead:
        try:
            result = await switched
        except GeneratorExit:  # the coroutine is closed: nobody will await anything any more
            inner.parent = getcurrent()
            with turn:
                inner.throw(GreenletExit)
            raise
        except BaseException as error:
            inner.parent = getcurrent()  # the loop may resume this coroutine from another greenlet
            with turn:
                switched = inner.throw(error)
        else:
            inner.parent = getcurrent()
            with turn:
                switched = inner.switch(result)
    return cast(T, switched)


def wait(awaitable: Awaitable[T]) -> T:
    """Wait for an awaitable in a function that `run_sync` called, at any depth."""
    return cast(T, _current().parent.switch(awaitable))


def runs_sync() -> bool:
    """Whether the code that runs now is of a function that `run_sync` called."""
    return isinstance(getcurrent(), _SyncGreenlet)


def require_sync() -> None:
    """Refuse a call that does not come from a function that `run_sync` called."""
    _current()


def _current() -> Any:
    current = getcurrent()
    if isinstance(current, _SyncGreenlet):
        return current
    elsewhere = threading.current_thread() is not threading.main_thread()
    hint = FROM_THREAD if elsewhere else FROM_ASYNC
    raise InputError("this call is for synchronous programs", hint=hint)
