"""Clients that work in turns, and can be paused between them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Crew:
    """Each client takes `turn`s; while the crew is paused, no new one begins."""

    def __init__(self) -> None:
        self.finished = False
        self._working, self._idle = asyncio.Event(), asyncio.Event()
        self._working.set()
        self._idle.set()
        self._busy = 0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One piece of work, once the crew works."""
        await self._working.wait()
        self._busy += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def pause(self) -> None:
        """Begin nothing new, and wait until nobody is in the middle of something."""
        self._working.clear()
        await self._idle.wait()

    def resume(self) -> None:
        """Go on."""
        self._working.set()

    def finish(self) -> None:
        """Go home, also from a pause."""
        self.finished = True
        self._working.set()
