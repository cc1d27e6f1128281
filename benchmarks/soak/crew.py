"""Clients that work in turns, and can be paused between them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from benchmarks.soak.patience import within

TURN_S = 240.0  # of one turn, with all restarts, drains and waits for Slurm in it
PAUSE_S = TURN_S + 30.0  # until all are between two turns


@dataclass
class Turn:
    """What a client does just now."""

    doing: str = "its beginning"
    since_s: float = field(default_factory=time.monotonic)

    def now(self, doing: str) -> None:
        """Note what is waited for next."""
        self.doing, self.since_s = doing, time.monotonic()

    def __str__(self) -> str:
        return f"{self.doing} (since {time.monotonic() - self.since_s:.0f} s)"


class Crew:
    """Each client takes `turn`s; while the crew is paused, no new one begins."""

    def __init__(self) -> None:
        self._working, self._idle = asyncio.Event(), asyncio.Event()
        self._working.set()
        self._idle.set()
        self._turns: dict[str, Turn] = {}

    @contextlib.asynccontextmanager
    async def turn(self, who: str) -> AsyncIterator[Turn]:
        """One piece of work, once the crew works."""
        await self._working.wait()
        turn = self._turns[who] = Turn()
        self._idle.clear()
        try:
            async with within(TURN_S, who, lambda: str(turn)):
                yield turn
        finally:
            del self._turns[who]
            if not self._turns:
                self._idle.set()

    async def pause(self) -> None:
        """Begin nothing new, and wait until nobody is in the middle of something."""
        self._working.clear()
        async with within(PAUSE_S, "a pause", self._busy):
            await self._idle.wait()

    def _busy(self) -> str:
        return ", ".join(f"{who}: {turn}" for who, turn in self._turns.items())

    def resume(self) -> None:
        """Go on."""
        self._working.set()
