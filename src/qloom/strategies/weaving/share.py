"""A share of the QPU that is asked for before it is needed, and given back if it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from qloom.aio import TaskScope, run_to_end
from qloom.errors import QloomError
from qloom.ports import Allocation


class EarlyShare:
    """At most one share, on its way or held, that no quantum phase uses yet."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, Allocation]]) -> None:
        self._ask = ask
        self._asked: asyncio.Future[Allocation] | None = None
        self._tasks = TaskScope()
        self._looking: dict[asyncio.Task[None], None] = {}  # for the moment to ask for it

    def prepare(self, looking: Coroutine[Any, Any, None] | None) -> None:
        """Look for the moment to `keep` it; who has looked until now gives up."""
        for task in self._looking:
            task.cancel()
        if looking is not None:
            task = self._tasks.start(looking)
            self._looking[task] = None
            task.add_done_callback(self._looking.pop)

    async def keep(self, for_s: float) -> None:
        """Ask for it now; give it back if nobody takes it within `for_s`, or if this is cancelled."""
        asked = self._asked = self._tasks.start(self._ask())
        try:
            await asyncio.sleep(for_s)
        finally:
            if self._asked is asked:
                self._asked = None
                await _give_back(asked)

    def end(self) -> list[asyncio.Task[None]]:
        """Give it back if nobody has taken it; what is returned has to be waited for."""
        self.prepare(None)
        return list(self._looking)

    async def take(self) -> Allocation:
        """The share, asked for now if it was not before."""
        asked, self._asked = self._asked, None
        if asked is None or (asked.done() and asked.exception() is not None):
            return await self._ask()
        try:
            return await asked
        except asyncio.CancelledError:  # it may have been granted all the same
            await _give_back(asked)
            raise


async def _give_back(asked: asyncio.Future[Allocation]) -> None:
    """In a task of its own, since who calls may be cancelled more than once."""
    asked.cancel()
    await run_to_end(_release(asked))


async def _release(asked: asyncio.Future[Allocation]) -> None:
    with suppress(asyncio.CancelledError, QloomError):  # then nothing was granted
        await (await asked).release()
