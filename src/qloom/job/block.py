"""Holds of a QPU that several calls share: opened by the first, kept while anyone uses it, closed by the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Generic, TypeVar

from qloom.aio import TaskScope, done, finish, outcome_of

T = TypeVar("T")


class SharedHold(Generic[T]):
    """Shares one context. It is entered and left by a task of its own, so any user may be cancelled."""

    def __init__(self) -> None:
        self._users = 0
        self._tasks = TaskScope()
        self._keeper: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[T]
        self._unused: asyncio.Event

    @asynccontextmanager
    async def use(self, hold: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Wait until the hold of the first user is open, and keep that one open for as long as this context lasts."""
        while self._users == 0 and self._keeper is not None and not self._keeper.done():
            await done(self._keeper)  # the last users have left and it is being closed
        if self._users == 0:
            self._opened = asyncio.get_running_loop().create_future()
            self._unused = asyncio.Event()
            self._keeper = self._tasks.start(self._keep(hold, self._opened, self._unused))
        keeper, opened, unused = self._keeper, self._opened, self._unused
        assert keeper is not None  # noqa: S101
        self._users += 1
        try:
            yield await outcome_of(opened)
        finally:
            self._users -= 1
            if self._users == 0:
                unused.set()
                await finish(keeper, cancel=not opened.done())
                if not keeper.cancelled() and opened.done():
                    keeper.result()

    async def _keep(
        self, hold: AbstractAsyncContextManager[T], opened: asyncio.Future[T], unused: asyncio.Event
    ) -> None:
        try:
            async with hold as held:
                opened.set_result(held)
                await unused.wait()
        except asyncio.CancelledError:
            if not opened.cancel():
                raise
        except BaseException as failure:
            if opened.done():
                raise  # the last user is given it
            opened.set_exception(failure)
            opened.exception()  # seen, even if no user is left


class QuantumBlock:
    """A quantum block of the program; it takes hold of the QPU with its first task that has to run."""

    def __init__(self, reserve: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._reserve = reserve
        self._stack = AsyncExitStack()
        self._tasks = TaskScope()
        self._holding: asyncio.Task[Any] | None = None
        self.calls: list[asyncio.Task[Any]] = []

    async def finish(self) -> None:
        """Wait for the calls that were made inside; whoever awaits them sees how they ended."""
        if self.calls:
            await asyncio.wait(self.calls)

    async def hold(self) -> None:
        """Take hold, once."""
        if self._holding is None:
            self._holding = self._tasks.start(self._stack.enter_async_context(self._reserve()))
        await outcome_of(self._holding)

    async def close(self) -> None:
        """Let go."""
        if self._holding is not None:
            await finish(self._holding, cancel=not self._holding.done())
        await self._stack.aclose()
