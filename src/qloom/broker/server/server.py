"""The HTTP server of the broker and of the dashboard: uvicorn, with limits for connections and deadlines for clients.

It knows nothing of what it serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import uvicorn

from qloom.broker.auth.peers import Client, Proxies
from qloom.broker.config_parts import LimitsPart
from qloom.broker.server.connections import Connections, Listener
from qloom.broker.server.protocol import HttpProtocol

REQUESTS_S = 5  # for requests that are under way when the server is asked to stop

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class LimitedServer(uvicorn.Server):
    """Serves an ASGI application within limits, until SIGINT or SIGTERM.

    Calls `stop` then, which ends requests that wait: they would keep the server from ending.
    """

    def __init__(self, app: App, limits: LimitsPart, proxies: Proxies, stop: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,  # nobody may say that they are somebody else
                server_header=False,
                lifespan="off",
                timeout_keep_alive=math.ceil(limits.idle_s),
                timeout_graceful_shutdown=REQUESTS_S,
            )
        )
        self._limits, self._proxies, self._stop = limits, proxies, stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections within the limits, which the servers of asyncio do not have."""
        connections = Connections(self._limits, self._proxies)

        def protocol(client: Client | None, closed: Callable[[], None]) -> HttpProtocol:
            return HttpProtocol(self.config, self.server_state, self._limits, client, closed)

        self.servers = [Listener(one, connections, protocol) for one in sockets or []]  # type: ignore[misc]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's own, this does not kill the process before the application is closed."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._asked_to_stop)
        yield

    def _asked_to_stop(self) -> None:
        self.should_exit = True
        self._stop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, and return when no request is left: those that take too long are cancelled."""
        await super().shutdown(sockets)
        if self.server_state.tasks:
            await asyncio.wait(list(self.server_state.tasks))
