"""What a user or a peer may use: requests a second, slots, bytes of bodies; and how much they may make us log.

Nothing in here knows of HTTP: whoever counts says what is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from qloom.broker.problems import TooManyRequests

REMEMBERED = 10_000  # users whose rate is known
LINES, EVERY_S = 5, 10.0  # lines of one kind in each such period
KINDS = 1000  # of log lines that are distinguished


class Rate:
    """So many `what` a second for each user or peer, and a burst of some more."""

    def __init__(self, per_s: float, burst: float, now_s: Callable[[], float], what: str = "requests") -> None:
        self._per_s, self._burst, self._now_s, self._what = per_s, burst, now_s, what
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # user -> how many, as of when

    def take(self, user: str) -> None:
        """Count one, or raise."""
        now_s = self._now_s()
        left, as_of_s = self._left.pop(user, (self._burst, now_s))
        left = min(self._burst, left + (now_s - as_of_s) * self._per_s)
        self._left[user] = (left - 1 if left >= 1 else left, now_s)
        if len(self._left) > REMEMBERED:
            self._left.popitem(last=False)
        if left < 1:
            raise TooManyRequests(f"more than {self._per_s:g} {self._what} a second", hint="wait a moment")

    def charge(self, user: str, more: float) -> None:
        """Count more for something that was let through and turned out to be large; the user may be in debt then."""
        left, as_of_s = self._left.get(user, (self._burst, self._now_s()))
        self._left[user] = (left - more, as_of_s)


class Slots:
    """At most `each` at once for each user or peer, and `total` in all."""

    def __init__(self, each: int, total: int | None = None) -> None:
        self.each, self.total = each, total
        self.count = 0
        self._of: dict[str, int] = {}

    def take(self, user: str, limited: bool = True) -> bool:
        """Take a slot if there is one; `limited=False` counts in the total only."""
        held = self._of.get(user, 0)
        if (limited and held >= self.each) or (self.total is not None and self.count >= self.total):
            return False
        self._of[user] = held + 1
        self.count += 1
        return True

    def release(self, user: str) -> None:
        """Give a slot back."""
        self.count -= 1
        self._of[user] -= 1
        if self._of[user] == 0:
            del self._of[user]

    @contextlib.contextmanager
    def held(self, user: str, what: str) -> Iterator[None]:
        """Hold a slot, or raise."""
        if not self.take(user):
            raise TooManyRequests(f"user {user} has {self.each} {what} at once", hint="wait until one has ended")
        try:
            yield
        finally:
            self.release(user)


@dataclass(eq=False)
class _WaitingBody:
    user: str
    size: int
    granted: asyncio.Future[None]


class ByteBudget:
    """Bytes in memory on behalf of callers. What does not fit waits in line; one user's line holds up nobody else."""

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self.used = 0
        self._of: dict[str, int] = {}
        self._line: deque[_WaitingBody] = deque()

    @contextlib.asynccontextmanager
    async def reserved(self, user: str, size: int) -> AsyncIterator[None]:
        """Wait until there is room for `size` bytes, and hold it; callers set the deadline."""
        await self._reserve(user, size)
        try:
            yield
        finally:
            self._release(user, size)

    async def _reserve(self, user: str, size: int) -> None:
        waiting = _WaitingBody(user, size, asyncio.get_running_loop().create_future())
        self._line.append(waiting)
        self._grant()
        try:
            await waiting.granted
        except asyncio.CancelledError:
            if waiting.granted.done() and not waiting.granted.cancelled():  # both at once
                self._release(user, size)
            else:
                self._line.remove(waiting)
                self._grant()  # it may have been in the way of others
            raise

    def _release(self, user: str, size: int) -> None:
        self.used -= size
        self._of[user] -= size
        if self._of[user] == 0:
            del self._of[user]
        self._grant()

    def _grant(self) -> None:
        for waiting in list(self._line):
            if waiting.granted.cancelled():  # it is about to leave the line
                continue
            if self._of.get(waiting.user, 0) + waiting.size > self._each:
                continue  # waits for the same user's other requests only
            if self.used + waiting.size > self._total:
                return  # nobody overtakes, or a large request would wait for ever
            self._line.remove(waiting)
            self.used += waiting.size
            self._of[waiting.user] = self._of.get(waiting.user, 0) + waiting.size
            waiting.granted.set_result(None)


class SparseLines(logging.Filter):
    """Lets a few log lines of each kind through in each period: a stranger must not be able to fill the disk."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()  # kind -> start of its period, lines in it

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written; the first of a new period says how many were not."""
        now_s, kind = self._now_s(), str(record.msg)
        began_s, lines = self._seen.pop(kind, (now_s, 0))
        left_out = max(0, lines - LINES)
        if now_s - began_s >= EVERY_S:
            began_s, lines = now_s, 0
            if left_out:
                record.msg = f"{record.msg} ({left_out} more like this were not logged)"
        self._seen[kind] = (began_s, lines + 1)
        if len(self._seen) > KINDS:
            self._seen.popitem(last=False)
        return lines < LINES
