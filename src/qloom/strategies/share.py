"""A share of the QPU that is asked for before it is needed, and given back if it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from qloom.errors import QloomError
from qloom.ports import Allocation


class EarlyShare:
    """At most one share, on its way or held, that no quantum phase uses yet."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, Allocation]]) -> None:
        self._ask = ask
        self._asked: asyncio.Future[Allocation] | None = None

    async def keep(self, for_s: float) -> None:
        """Ask for it now; give it back if nobody takes it within `for_s`, or if this is cancelled."""
        asked = self._asked = asyncio.ensure_future(self._ask())
        try:
            await asyncio.sleep(for_s)
        finally:
            if self._asked is asked:
                self._asked = None
                asked.cancel()
                with suppress(asyncio.CancelledError, QloomError):
                    await (await asked).release()

    def take(self) -> asyncio.Future[Allocation]:
        """The share, asked for now if it was not before."""
        asked, self._asked = self._asked, None
        failed = asked is not None and asked.done() and asked.exception() is not None
        return asyncio.ensure_future(self._ask()) if asked is None or failed else asked
