"""The feed of events, for whoever listens: each hears of their own projects and of the devices.

The last events are kept, so that a listener whose line broke goes on where it was.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from qloom.broker.requests import Caller

BACKLOG = 1000  # a listener that is further behind is cut off, and has to come again
KEPT = BACKLOG // 2  # events that are kept for those who come again
HEARTBEAT_S = 15.0
CHECK_S = 1.0  # a silent stream ends within this time after its credential was revoked
MISSED = {"event": "missed", "hint": "more happened than is kept: look at what you wait for"}

Event = dict[str, Any]
Current = Callable[[Caller], Caller | None]


@dataclass(frozen=True)
class News:
    """An event, and who may know what of it: its owner, the other members of the project, everybody."""

    event: Event
    project: str | None = None  # None: everybody may know all of it
    owner: str | None = None
    for_others: Event | None = None  # what the other members of the project may know of it

    def seen_by(self, who: Caller) -> Event | None:
        """As a listener may see it; None if it is not theirs to know."""
        if self.project is None:
            return self.event
        if self.project not in who.projects:
            return None
        return self.event if who.user == self.owner else self.for_others


@dataclass(eq=False)
class EventListener:
    """Who listens, and what they have not heard yet. `current` reports what a caller may by now."""

    who: Caller
    current: Current
    queue: asyncio.Queue[tuple[str, News] | None] = field(default_factory=asyncio.Queue)

    def is_welcome(self) -> bool:
        """Look again at what the listener may know; False if their credential no longer counts."""
        now = self.current(self.who)
        self.who = now or self.who
        return now is not None

    async def next(self) -> tuple[str, Event] | None:
        """The id and content of the next event, as far as the listener may know it by then; None at the end."""
        while (heard := await self.queue.get()) is not None and self.is_welcome():
            id, news = heard
            if (event := news.seen_by(self.who)) is not None:
                return id, event
        return None


class EventFeed:
    """Listeners, each with a separate queue. `life` marks the events of this run of the broker."""

    def __init__(self, life: str = "0") -> None:
        self._life = life
        self._listeners: dict[EventListener, None] = {}
        self._number = 0  # of the last event
        self._past: deque[tuple[int, News]] = deque(maxlen=KEPT)
        self.observe: Callable[[Event], None] = lambda event: None  # sees everything: for metrics

    def listen(self, who: Caller, after: str | None = None, current: Current = lambda who: who) -> EventListener:
        """A listener to events, from the one after the id `after`."""
        listener = EventListener(who, current)
        if after is not None:
            life, _, number = after.partition("-")
            first = self._past[0][0] if self._past else self._number + 1
            known = life == self._life and number.isascii() and number.isdigit() and int(number) <= self._number
            seen = int(number) if known else self._number
            if not known or seen + 1 < first:
                listener.queue.put_nowait((f"{self._life}-{seen}", News(MISSED)))
            for one, news in self._past:
                if one > seen and news.seen_by(who) is not None:
                    listener.queue.put_nowait((f"{self._life}-{one}", news))
        self._listeners[listener] = None
        return listener

    def leave(self, listener: EventListener) -> None:
        """Nobody listens there any more."""
        self._listeners.pop(listener, None)

    def publish(self, news: News) -> None:
        """Send an event to all who may know of it."""
        self.observe(news.event)
        self._number += 1
        self._past.append((self._number, news))
        for listener in list(self._listeners):
            if news.seen_by(listener.who) is None:
                continue
            if listener.queue.qsize() >= BACKLOG:
                del self._listeners[listener]
                listener.queue.put_nowait(None)
            else:
                listener.queue.put_nowait((f"{self._life}-{self._number}", news))

    def close(self) -> None:
        """The end for everybody."""
        for listener in self._listeners:
            listener.queue.put_nowait(None)
        self._listeners.clear()


async def stream_events(
    feed: EventFeed, who: Caller, after: str | None = None, current: Current = lambda who: who
) -> AsyncIterator[str]:
    """Events as long as the listener's credential counts, and comments that keep the connection alive."""
    listener, silent_s = feed.listen(who, after, current), 0.0
    try:
        yield ": qloom\n\n"
        while listener.is_welcome():
            try:
                async with asyncio.timeout(CHECK_S):
                    heard = await listener.next()
            except TimeoutError:
                silent_s += CHECK_S
                if silent_s >= HEARTBEAT_S:
                    silent_s = 0.0
                    yield ": still here\n\n"
                continue
            if heard is None:
                return
            silent_s = 0.0
            id, event = heard
            yield f"id: {id}\nevent: {event['event']}\ndata: {json.dumps(event)}\n\n"
    finally:
        feed.leave(listener)
