"""What happens, told to whoever listens: each hears of their own projects and of the devices.

The last events are kept, so that a listener whose line broke goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qloom.broker.records import Caller

BACKLOG = 1000  # a listener that is further behind is cut off, and has to come again
KEPT = BACKLOG // 2  # events that are kept for those who come again
MISSED = {"event": "missed", "hint": "more happened than is kept: look at what you wait for"}

Event = dict[str, Any]


@dataclass(frozen=True)
class News:
    """An event, and as whom it is told to: its owner, the other members of the project, or everybody."""

    event: Event
    project: str | None = None  # None: everybody may know all of it
    owner: str | None = None
    for_others: Event | None = None  # what the other members of the project may know of it

    def seen_by(self, who: Caller) -> Event | None:
        """As a listener may see it; None if it is not theirs to know."""
        if self.project is None or who.user == self.owner:
            return self.event
        return self.for_others if self.project in who.projects else None


class Feed:
    """Listeners, each with a queue of its own. `life` tells events of this run of the broker from those before."""

    def __init__(self, life: str = "0") -> None:
        self._life = life
        self._listeners: dict[int, tuple[Caller, asyncio.Queue[tuple[str, Event] | None]]] = {}
        self._listened = 0
        self._number = 0  # of the last event
        self._past: deque[tuple[int, News]] = deque(maxlen=KEPT)
        self.observe: Callable[[Event], None] = lambda event: None  # sees everything: for metrics

    def listen(self, who: Caller, after: str | None = None) -> tuple[int, asyncio.Queue[tuple[str, Event] | None]]:
        """A queue of (id, event), from the one after the id `after`; None is its end."""
        self._listened += 1
        queue: asyncio.Queue[tuple[str, Event] | None] = asyncio.Queue()
        if after is not None:
            life, _, number = after.partition("-")
            first = self._past[0][0] if self._past else self._number + 1
            known = life == self._life and number.isascii() and number.isdigit() and int(number) <= self._number
            seen = int(number) if known else self._number
            if not known or seen + 1 < first:
                queue.put_nowait((f"{self._life}-{seen}", MISSED))
            for one, news in self._past:
                if one > seen and (event := news.seen_by(who)) is not None:
                    queue.put_nowait((f"{self._life}-{one}", event))
        self._listeners[self._listened] = (who, queue)
        return self._listened, queue

    def leave(self, listener: int) -> None:
        """Nobody listens there any more."""
        self._listeners.pop(listener, None)

    def tell(self, news: News) -> None:
        """Tell all who may know."""
        self.observe(news.event)
        self._number += 1
        self._past.append((self._number, news))
        for listener, (who, queue) in list(self._listeners.items()):
            if (event := news.seen_by(who)) is None:
                continue
            if queue.qsize() >= BACKLOG:
                del self._listeners[listener]
                queue.put_nowait(None)
            else:
                queue.put_nowait((f"{self._life}-{self._number}", event))

    def close(self) -> None:
        """The end for everybody."""
        for _who, queue in self._listeners.values():
            queue.put_nowait(None)
        self._listeners.clear()
