"""One hold for several users at once: opened by the first, kept while anyone uses it, closed by the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Generic, TypeVar

from qloom.aio import finish, let_others_go_first

T = TypeVar("T")


class SharedHold(Generic[T]):
    """Shares what `open_it` gives. It is entered and left by a task of its own, so any user may be cancelled."""

    def __init__(self, open_it: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._open_it = open_it
        self._users = 0
        self._keeper: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[T]
        self._unused: asyncio.Event

    def use(self) -> AbstractAsyncContextManager[T]:
        """Wait until the hold is open, and keep it open for as long as this context lasts."""
        hold = self._open_it()
        return _nothing(hold) if isinstance(hold, nullcontext) else self._use(hold)

    @asynccontextmanager
    async def _use(self, hold: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        while self._users == 0 and self._keeper is not None and not self._keeper.done():
            await asyncio.wait([self._keeper])  # the last users have left and it is being closed
        if self._users == 0:
            self._opened = asyncio.get_running_loop().create_future()
            self._unused = asyncio.Event()
            self._keeper = asyncio.ensure_future(self._keep(hold, self._opened, self._unused))
        keeper, opened, unused = self._keeper, self._opened, self._unused
        assert keeper is not None  # noqa: S101
        self._users += 1
        try:
            either: list[asyncio.Future[Any]] = [keeper, opened]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not opened.done():
                keeper.result()  # it failed to open: say why
            yield opened.result()
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
        async with hold as held:
            opened.set_result(held)
            await unused.wait()


@asynccontextmanager
async def _nothing(hold: nullcontext[T]) -> AsyncIterator[T]:
    """Nothing has to be kept, so no task has to keep it."""
    await let_others_go_first(3)
    yield hold.enter_result
