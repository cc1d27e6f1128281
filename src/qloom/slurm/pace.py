"""How often a run may call Slurm: a token bucket, as Slurm's own limit is (`rl_enable`: 30 calls, then 2 a second).

All calls of a run go through one bucket. When it is empty they take turns: what gives something back goes first, then
looks and the steps of what is held, and what asks for more last.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from enum import IntEnum

EARLY = 1e-3  # of a call: a timer may ring a moment early
BURST_S = 10.0  # so many seconds' worth of calls may come at once


class Urgency(IntEnum):
    """Whose turn is first."""

    RELEASE = 0
    USE = 1
    ASK = 2


class Pace:
    """Gives turns, at most `per_s` in a second once a burst is used up; `throttled` is called the first time."""

    def __init__(self, per_s: float, throttled: Callable[[], None]) -> None:
        self._per_s = per_s
        self._throttled: Callable[[], None] | None = throttled
        self._most = max(1.0, per_s * BURST_S)
        self._left = self._most
        self._at_s: float | None = None
        self._waiting: list[tuple[Urgency, int, asyncio.Future[None]]] = []
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    def turn(self, urgency: Urgency) -> asyncio.Future[None]:
        """A future that is done when it is this call's turn; one that is cancelled before costs nothing."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._number += 1
        heapq.heappush(self._waiting, (urgency, self._number, turn))
        self._give()
        if not turn.done() and self._throttled is not None:
            self._throttled()
            self._throttled = None
        return turn

    def _give(self) -> None:
        """Give all turns that there are, and come back for the next."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        passed_s = now_s - (now_s if self._at_s is None else self._at_s)
        self._left, self._at_s = min(self._most, self._left + passed_s * self._per_s), now_s
        while self._waiting and self._left >= 1 - EARLY:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later((1 - self._left) / self._per_s, self._give) if self._waiting else None
