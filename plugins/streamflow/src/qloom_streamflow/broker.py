"""The few calls to a qloom broker that connectors need, over HTTP or its unix socket."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
from streamflow.core.exception import WorkflowExecutionException

from qloom_streamflow.credential import authorization
from qloom_streamflow.home import broker_address

RETRY_S = 60.0  # a broker may be restarted meanwhile
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
WAIT_S = 20.0


class NoBroker(WorkflowExecutionException):
    """No broker answers."""


class Broker:
    """One broker: `unix:PATH` or `http://HOST:PORT`."""

    def __init__(self, address: str | None = None, retry_s: float = RETRY_S) -> None:
        self.address = broker_address(address)
        self._retry_s = retry_s
        self._session: aiohttp.ClientSession | None = None

    async def submit(self, form: dict[str, Any]) -> dict[str, Any]:
        """Queue a task; its key makes it safe to send again."""
        return dict(await self._ask("POST", "/v1/tasks", form))

    async def status(self, task: str) -> dict[str, Any]:
        """How a task stands, and its place in the queue."""
        return dict(await self._ask("GET", f"/v1/tasks/{task}"))

    async def result(self, task: str, wait_s: float) -> dict[str, Any]:
        """The task with its result, or as it stands when the time is up."""
        return dict(await self._ask("GET", f"/v1/tasks/{task}/result", wait_s=wait_s))

    async def cancel(self, task: str) -> dict[str, Any]:
        """A task is no longer wanted."""
        return dict(await self._ask("DELETE", f"/v1/tasks/{task}"))

    async def devices(self) -> list[dict[str, Any]]:
        """All devices, with their state and the wait that a new task would have."""
        return list(await self._ask("GET", "/v1/devices"))

    async def close(self) -> None:
        """Let go of the connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, method: str, path: str, body: Any = None, wait_s: float = 0.0) -> Any:
        deadline_s, pause_s = time.monotonic() + self._retry_s, FIRST_PAUSE_S
        while True:
            try:
                return await self._once(method, path, body, wait_s)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                if time.monotonic() + pause_s > deadline_s:
                    what = getattr(error, "strerror", None) or str(error) or type(error).__name__
                    raise NoBroker(
                        f"no broker answers at {self.address} ({what}); is `qloom broker serve` running?"
                    ) from None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _once(self, method: str, path: str, body: Any, wait_s: float) -> Any:
        if self._session is None:
            is_socket = self.address.startswith("unix:")
            connector = aiohttp.UnixConnector(self.address.removeprefix("unix:")) if is_socket else None
            self._session = aiohttp.ClientSession("http://broker" if is_socket else self.address, connector=connector)
        target = f"{path}?wait={wait_s}" if wait_s else path
        content = json.dumps(body).encode() if body is not None else b""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if shown := await authorization(method, target, content):
            headers["Authorization"] = shown
        limit = aiohttp.ClientTimeout(total=30.0 + wait_s)
        async with self._session.request(
            method, target, data=content or None, headers=headers, timeout=limit
        ) as response:
            text = await response.text()
            if response.status in (429, 502, 503):
                raise aiohttp.ClientConnectionError(text[:200])
            try:
                answer = json.loads(text)
            except ValueError:
                raise NoBroker(f"what answers at {self.address} is no broker") from None
            if response.status >= 400:
                hint = f" ({answer['hint']})" if answer.get("hint") else ""
                raise WorkflowExecutionException(f"the broker says: {answer.get('message', text[:200])}{hint}")
            return answer
