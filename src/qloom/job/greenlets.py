"""Synchronous functions beside an event loop: on a greenlet of it, or in a thread that asks it. No job is known here.

On a greenlet, the function's parent is the coroutine that drives it. `wait` switches to that coroutine with an
awaitable; the coroutine awaits it and switches back with the result, or throws the exception into the function. So a
synchronous program works in virtual time, is deterministic and can be cancelled.

In real time the loop must go on while a program computes: workers, leases and devices need it. There the function
runs in a thread, which asks the loop and waits for its replies. Threads of libraries (JAX has some) may ask as well.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar, cast

from greenlet import GreenletExit, getcurrent, greenlet

from qloom.aio import TaskScope, run_to_end
from qloom.errors import InputError

T = TypeVar("T")
END_S = 5.0  # how long a cancelled function may take to clean up
FROM_ASYNC = "in an async function, await the calls of a job; a synchronous program is a plain def"
IN_THREAD = "this thread cannot make calls of a job in virtual time"
FROM_THREAD = "make them in the thread that runs the program, or run it with --world local"


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
    if threading.current_thread() is not threading.main_thread():
        raise InputError(IN_THREAD, hint=FROM_THREAD)
    raise InputError("this call is for synchronous programs", hint=FROM_ASYNC)


class AskingThread(Generic[T]):
    """A thread that calls a function. `ask` sends a request to the loop, which `answer`s it."""

    def __init__(self, answer: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._answering = TaskScope()
        self._is_over = False
        self._ended: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()

    async def run(self, function: Callable[[], T]) -> T:
        """Call the function and wait for its end. A cancelled caller cancels its requests."""
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._main, function), name="program", daemon=True).start()
        try:
            result, error = await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            await run_to_end(self._unwind())
            raise
        await self._close()
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    async def _close(self) -> None:
        self._is_over = True
        await self._answering.aclose()

    async def _unwind(self) -> None:
        """Let the function clean up; one that computes on gets nothing through any more."""
        await self._close()
        await asyncio.wait([self._ended], timeout=END_S)

    def _main(self, function: Callable[[], T]) -> None:
        ended: tuple[Any, BaseException | None]
        try:
            ended = (function(), None)
        except BaseException as error:
            ended = (None, error)
        self._call_soon(self._end, ended)

    def _end(self, ended: tuple[Any, BaseException | None]) -> None:
        if not self._ended.done():
            self._ended.set_result(ended)

    def ask(self, *request: Any) -> Any:
        """Send a request and wait for its reply; raises what the answer raised."""
        if threading.get_ident() == self._loop_thread:
            raise InputError("this call is for synchronous programs", hint=FROM_ASYNC)
        reply: concurrent.futures.Future[Any] = concurrent.futures.Future()
        if not self._call_soon(self._begin, reply, request):
            raise asyncio.CancelledError
        return reply.result()

    def _call_soon(self, callback: Callable[..., None], *args: Any) -> bool:
        """Have the loop call something; False if the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            return False
        return True

    def _begin(self, reply: concurrent.futures.Future[Any], request: tuple[Any, ...]) -> None:
        if self._is_over:
            reply.set_exception(asyncio.CancelledError())
            return
        answering = self._answering.start(self._answer(*request))
        answering.add_done_callback(lambda answered: _pass_on(answered, reply))


def _pass_on(answered: asyncio.Task[Any], reply: concurrent.futures.Future[Any]) -> None:
    if answered.cancelled():
        reply.set_exception(asyncio.CancelledError())
    elif (error := answered.exception()) is not None:
        reply.set_exception(error)
    else:
        reply.set_result(answered.result())
