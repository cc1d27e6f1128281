"""Waits with a bound: a soak that waits for ever says nothing, so each wait that takes too long is a finding."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping

from qloom.aio import where_tasks_wait

CANCELLED_S = 30.0  # for tasks that were cancelled to end


class Stuck(Exception):
    """Somebody waited longer than anything should take; says who, and what for."""


@contextlib.asynccontextmanager
async def within(seconds: float, who: str, what: str | Callable[[], str]) -> AsyncIterator[None]:
    """Raise `Stuck` if what is done inside takes longer."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise Stuck(f"{who} waited {seconds:g} s for {what if isinstance(what, str) else what()}") from None


Work = Coroutine[object, object, None]


async def run_beside(main: Work, others: Mapping[str, Work]) -> None:
    """Run `main` with others beside it until it ends or any fails, then cancel all; raises what failed."""
    first = asyncio.create_task(main, name="the soak itself")
    tasks = [first, *(asyncio.create_task(work, name=name) for name, work in others.items())]
    try:
        left = set(tasks)
        while not first.done() and not any(_failure(task) for task in tasks):
            _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        _, stuck = await asyncio.wait(tasks, timeout=CANCELLED_S)
    failures = [error for task in tasks if (error := _failure(task)) is not None]
    if stuck:
        names, waits = (task.get_name() for task in stuck), where_tasks_wait(asyncio.get_running_loop())
        failures.append(Stuck(f"{', '.join(names)} did not end when cancelled; tasks wait in {'; '.join(waits)}"))
    if failures:
        raise BaseExceptionGroup("the soak could not go on", failures)


def _failure(task: asyncio.Task[None]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None


@contextlib.contextmanager
def last_resort(seconds: float, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """End the process if it still runs after so many seconds, also if its loop is blocked."""

    def end() -> None:
        print(f"VIOLATION: the soak did not end within {seconds:g} s", flush=True)
        for waiting in where_tasks_wait(loop):
            print(f"  it waits in {waiting}", flush=True)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
