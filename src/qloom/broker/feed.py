"""What happens, told to whoever listens: each hears of their own projects and of the devices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from qloom.broker.records import Caller

BACKLOG = 1000  # a listener that is further behind is cut off, and has to look again

Event = dict[str, Any]


class Feed:
    """Listeners, each with a queue of its own."""

    def __init__(self) -> None:
        self._listeners: dict[int, tuple[Caller, asyncio.Queue[Event | None]]] = {}
        self._numbers = 0
        self.observe: Callable[[Event], None] = lambda event: None  # sees everything: for metrics

    def listen(self, who: Caller) -> tuple[int, asyncio.Queue[Event | None]]:
        """A queue of events; None is its end."""
        self._numbers += 1
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._listeners[self._numbers] = (who, queue)
        return self._numbers, queue

    def leave(self, listener: int) -> None:
        """Nobody listens there any more."""
        self._listeners.pop(listener, None)

    def tell(self, event: Event, project: str | None = None) -> None:
        """Tell all who may know."""
        self.observe(event)
        for number, (who, queue) in list(self._listeners.items()):
            if project is not None and project not in who.projects:
                continue
            if queue.qsize() >= BACKLOG:
                del self._listeners[number]
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    def close(self) -> None:
        """The end for everybody."""
        for _who, queue in self._listeners.values():
            queue.put_nowait(None)
        self._listeners.clear()
