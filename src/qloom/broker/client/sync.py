"""The client without `await`: a `BrokerClient` in a thread of its own, so that it works in notebooks too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from qloom.broker.client.client import BrokerClient, View
from qloom.model import Payload

R = TypeVar("R")


class SyncBrokerClient:
    """The same calls as `BrokerClient`. Close it, or use it in a `with` block."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="qloom-broker-client", daemon=True)
        self._thread.start()
        try:
            self._client = self._call(_make(*args, **options))
        except BaseException:
            self._end_loop()
            raise

    def _call(self, work: Coroutine[Any, Any, R]) -> R:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, payload: Payload | View, **options: Any) -> View:
        """Queue a payload."""
        return self._call(self._client.submit(payload, **options))

    def wait(self, task: str, **options: Any) -> View:
        """The end of a task."""
        return self._call(self._client.wait(task, **options))

    def result(self, task: str) -> Any:
        """The result of a task, once it is done."""
        return self._call(self._client.result(task))

    def run(self, payload: Payload | View, **options: Any) -> Any:
        """Submit a payload and wait for its result."""
        return self._call(self._client.run(payload, **options))

    def status(self, task: str) -> View:
        """How a task stands."""
        return self._call(self._client.status(task))

    def cancel(self, task: str) -> View:
        """A task is no longer wanted."""
        return self._call(self._client.cancel(task))

    def open_session(self, device: str, hold: str = "share", job: str | None = None, *, shared: bool = False) -> View:
        """Hold a device or a share of it: waits until it is granted."""
        return self._call(self._client.open_session(device, hold, job, shared=shared))

    def close_session(self, session: str) -> View:
        """Close a session."""
        return self._call(self._client.close_session(session))

    def devices(self) -> list[View]:
        """All devices."""
        return self._call(self._client.devices())

    def device(self, name: str) -> View:
        """One device."""
        return self._call(self._client.device(name))

    def queue(self) -> View:
        """Counts for each device, and the places of your own tasks."""
        return self._call(self._client.queue())

    def drain(self, device: str, drained: bool = True) -> View:
        """Start nothing new on a device, or start again (administrators)."""
        return self._call(self._client.drain(device, drained))

    def set_shares(self, device: str, shares: int) -> View:
        """Offer another number of vQPUs (administrators)."""
        return self._call(self._client.set_shares(device, shares))

    def tasks(self, device: str | None = None) -> list[View]:
        """Tasks of your projects that are not over; all of them for administrators."""
        return self._call(self._client.tasks(device))

    def sessions(self, device: str | None = None) -> list[View]:
        """Your sessions, and shared ones, that are not closed; all of them for administrators."""
        return self._call(self._client.sessions(device))

    def evict(self, id: str, reason: str = "") -> View:
        """Close a session, or cancel a task, of anybody (administrators)."""
        return self._call(self._client.evict(id, reason))

    def hold(self, task: str) -> View:
        """Keep a queued task from being started (administrators)."""
        return self._call(self._client.hold(task))

    def release(self, task: str) -> View:
        """Let a task run that was held (administrators)."""
        return self._call(self._client.release(task))

    def requeue(self, task: str) -> View:
        """Take a task back from its device and queue it again (administrators)."""
        return self._call(self._client.requeue(task))

    def reconcile(self, device: str | None = None) -> list[View]:
        """Where the vendors' accounting and ours differ (administrators)."""
        return self._call(self._client.reconcile(device))

    def close(self) -> None:
        """Let go of the connection. May be called again."""
        if not self._loop.is_closed():
            self._call(self._client.close())
            self._end_loop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> SyncBrokerClient:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


async def _make(*args: Any, **options: Any) -> BrokerClient:
    return BrokerClient(*args, **options)
