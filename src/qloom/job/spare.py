"""Spare work of one job: registered, perhaps started on an idle node, perhaps found again by its content.

It never changes a result: what was dropped or failed is run as required work when somebody asks for it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from qloom.model import Work


class SpareDropped(Exception):
    """The spare run of this work was given up: run it as required work."""


class SparePool:
    """What may be of use later, by the id of the work."""

    def __init__(self) -> None:
        self.most: int | None = None  # how many may run at once
        self._registered: dict[str, Work] = {}
        self._running: dict[str, asyncio.Future[Any]] = {}
        self._finished: dict[str, Any] = {}
        self._wanted: dict[str, bool] = {}
        self._required: dict[str, bool] = {}  # what runs, or has run, as required work: it is spare no more

    @property
    def waiting(self) -> list[Work]:
        """What no node runs yet."""
        return list(self._registered.values())

    @property
    def running(self) -> int:
        """How many pieces run now."""
        return len(self._running)

    def register(self, work: Work) -> None:
        """Take note of work; the same work is noted once."""
        if not any(work.id in known for known in (self._running, self._finished, self._required)):
            self._registered[work.id] = work

    def take(self) -> Work | None:
        """The next piece to run on one idle node, if there is any."""
        if not self._registered or (self.most is not None and self.running >= self.most):
            return None
        work = self._registered.pop(next(iter(self._registered)))
        self._running[work.id] = asyncio.get_running_loop().create_future()
        return work

    def finish(self, work: Work, result: Any) -> None:
        """A spare run has ended well."""
        running = self._running.pop(work.id)
        if self._wanted.pop(work.id, False):
            running.set_result(result)
        else:
            self._finished[work.id] = result

    def put_back(self, work: Work) -> None:
        """Put a dropped spare run back, to be started again unless somebody waits for it."""
        self.forget(work)
        self.register(work)

    def forget(self, work: Work) -> None:
        """A spare run is over without a result; whoever waited for it will run it themselves."""
        running = self._running.pop(work.id)
        wanted = self._wanted.pop(work.id, False)
        if wanted:
            self._required[work.id] = True
            running.set_exception(SpareDropped())

    def is_wanted(self, work: Work) -> bool:
        """Whether somebody waits for this spare run by now."""
        return work.id in self._wanted

    def claim(self, work: Work) -> asyncio.Future[Any] | None:
        """Work that is required now: a result or a run to wait for, or None if it must be run."""
        self._registered.pop(work.id, None)
        if work.id in self._finished:
            ready = asyncio.get_running_loop().create_future()
            ready.set_result(self._finished.pop(work.id))
            return ready
        if work.id in self._running and work.id not in self._wanted:
            self._wanted[work.id] = True
            return self._running[work.id]
        self._required[work.id] = True
        return None

    def unclaim(self, work: Work) -> None:
        """Whoever waited for this run has gone."""
        if self._wanted.pop(work.id, False):
            self._running[work.id] = asyncio.get_running_loop().create_future()

    def clear(self) -> None:
        """Forget spare work that was never started."""
        self._registered.clear()
