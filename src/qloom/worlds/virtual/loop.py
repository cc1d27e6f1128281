"""An asyncio event loop whose clock jumps to the next thing that is due.

Time is whole microseconds. Equal times wake in the order they were set; deadlines come after all else that is
due at the same instant. Nothing from outside can happen here: threads, processes and sockets are refused, and
when nothing is left to happen, or nothing but timers until a limit that was set, that is a deadlock.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from qloom.errors import Deadlock

_RunningLoop = asyncio._set_running_loop
FOR_EVER_US = 2**62

T = TypeVar("T")


class _Handle(list[Any]):
    """[callback, args, context], and a way to cancel. A list, because one is made for every step of a task."""

    __slots__ = ()

    def cancel(self) -> None:
        self[0] = None

    def cancelled(self) -> bool:
        return self[0] is None


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs coroutines in virtual time; `why_stuck` says who waits for what when nothing is left to happen."""

    def __init__(self) -> None:
        self.now_us = 0
        self.limit_us = FOR_EVER_US
        self.why_stuck: Callable[[], list[str]] = list
        self._ready: deque[_Handle | tuple[Any, Any, Any]] = deque()
        self._timers: list[tuple[int, bool, int, _Handle | asyncio.Future[None]]] = []
        self._sequence = 0
        self._closed = False
        self._running = False

    def time(self) -> float:
        """Virtual seconds."""
        return self.now_us / 1e6

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Call at this instant, after what was already asked for."""
        if context is not None:  # even an empty one. asyncio's own steps and callbacks are never cancelled: no handle
            self._ready.append((callback, args, context))
            return None
        self._ready.append(handle := _Handle((callback, args, contextvars.copy_context())))
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Call at a virtual time."""
        return self.call_at_us(round(when * 1e6), callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Call after some virtual time."""
        return self.call_at_us(self.now_us + round(delay * 1e6), callback, *args, context=context)

    def call_at_us(
        self, when_us: int, callback: Any, *args: Any, context: Any = None, deadline: bool = False
    ) -> _Handle:
        """Call at a virtual time; a deadline comes after all else at that instant."""
        handle = _Handle((callback, args, contextvars.copy_context() if context is None else context))
        self._sequence += 1
        heapq.heappush(self._timers, (max(when_us, self.now_us), deadline, self._sequence, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None, **_: Any) -> Any:
        """A task of this loop."""
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_until_complete(self, future: Any) -> Any:
        """Run until a coroutine or future is done; raises `Deadlock` if it cannot be."""
        main = future if isinstance(future, asyncio.Future) else asyncio.Task(future, loop=self)
        try:
            self._run_until(main)
        finally:
            if not main.done():
                main.cancel()
            self._cancel_all()
        return main.result()

    def _run_until(self, main: asyncio.Future[Any]) -> None:
        ready, timers, pop = self._ready, self._timers, heapq.heappop
        before = asyncio._get_running_loop()
        _RunningLoop(self)
        self._running = True
        try:
            while not main.done():
                while ready:
                    callback, args, context = ready.popleft()
                    if callback is not None:
                        context.run(callback, *args)
                if main.done():
                    break
                if not timers:
                    raise self._stuck("nothing is left to happen")
                if timers[0][0] > self.limit_us:
                    raise self._stuck(f"not done after {self.limit_us / 1e6:g} s")
                when_us, _late, _number, due = pop(timers)
                if isinstance(due, _Handle):
                    if not due.cancelled():
                        self.now_us = when_us
                        callback, args, context = due
                        context.run(callback, *args)
                elif not due.done():
                    self.now_us = when_us
                    due.set_result(None)
        finally:
            self._running = False
            _RunningLoop(before)

    def _stuck(self, what: str) -> Deadlock:
        why = "; ".join(self.why_stuck()) or "the program waits for itself"
        return Deadlock(f"{what}: {why}", hint="a job waits for something that nobody will give back")

    def _cancel_all(self) -> None:
        """End what is left, so that nothing is destroyed while pending."""
        for _ in range(100):
            tasks = [task for task in asyncio.all_tasks(self) if not task.done()]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            try:
                self._run_until(asyncio.gather(*tasks, return_exceptions=True))
            except Deadlock:
                continue

    def run_forever(self) -> None:
        """Not in virtual time: there is no outside that could stop it."""
        raise RuntimeError("virtual time runs until something is complete")

    def is_running(self) -> bool:
        """Whether callbacks are being called."""
        return self._running

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Forget what is left."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    get_debug = staticmethod(bool)  # never on; asked for each future, so this is not Python code

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What asyncio reports when an exception has no other way out."""
        logging.getLogger("qloom").error("%s", context.get("message"), exc_info=context.get("exception"))

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: generators end with their tasks."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there are no threads."""


def _refuse(name: str) -> Callable[..., Any]:
    def refused(self: VirtualLoop, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{name} is not possible in virtual time: a program may only await its job there")

    return refused


for _name in (
    "call_soon_threadsafe",
    "run_in_executor",
    "subprocess_exec",
    "subprocess_shell",
    "create_connection",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "create_datagram_endpoint",
    "connect_read_pipe",
    "connect_write_pipe",
    "add_reader",
    "add_writer",
    "add_signal_handler",
    "sock_recv",
    "sock_sendall",
    "sock_connect",
    "sock_accept",
    "getaddrinfo",
):
    setattr(VirtualLoop, _name, _refuse(_name))


class VirtualClock:
    """The clock of a virtual loop."""

    real_time = False

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_us(self) -> int:
        """Microseconds since the start of the run."""
        return self._loop.now_us

    def new_future(self) -> asyncio.Future[Any]:
        """A future of this clock's loop."""
        return asyncio.Future(loop=self._loop)

    def explain_with(self, why_stuck: Callable[[], list[str]]) -> None:
        """Who is asked what everybody waits for, should nothing be left to happen."""
        self._loop.why_stuck = why_stuck

    def limit(self, seconds: float) -> None:
        """Whoever is not done at that time is stuck, whatever else goes on."""
        self._loop.limit_us = round(seconds * 1e6)

    def sleep(self, seconds: float) -> asyncio.Future[None]:
        """Let virtual time pass. A bare future in the heap: most timers only wake somebody."""
        loop = self._loop
        woken: asyncio.Future[None] = asyncio.Future(loop=loop)
        loop._sequence = number = loop._sequence + 1
        heapq.heappush(loop._timers, (loop.now_us + max(0, round(seconds * 1e6)), False, number, woken))
        return woken

    def jump(self, at_us: int) -> bool:
        """Go to a time at once; False if anything else happens before or at it."""
        loop = self._loop
        if loop._ready or (loop._timers and loop._timers[0][0] <= at_us) or at_us > loop.limit_us:
            return False
        loop.now_us = at_us
        return True

    def call_later(self, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call `then` when the time is up."""
        loop = self._loop
        return loop.call_at_us(loop.now_us + max(0, round(seconds * 1e6)), then).cancel

    def deadline(self, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call `then` when the time is up, after all else that is due at that instant."""
        loop = self._loop
        return loop.call_at_us(loop.now_us + round(seconds * 1e6), then, deadline=True).cancel


def run_virtual(main: Callable[[VirtualClock], Coroutine[Any, Any, T]], at_us: int = 0) -> T:
    """Run a coroutine function in a new virtual loop whose clock starts at `at_us`."""
    loop = VirtualLoop()  # type: ignore[abstract]
    loop.now_us = at_us
    with rare_collections():
        try:
            return loop.run_until_complete(main(VirtualClock(loop)))  # type: ignore[no-any-return]
        finally:
            loop.close()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Have the garbage collector walk the events and records of a run less often: they hold no cycles."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
