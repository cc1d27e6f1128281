"""Requests to a broker that may be restarted meanwhile: they are sent again until they are answered."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

from qloom.broker.auth.peers import Munge, statement
from qloom.broker.config import default_address
from qloom.broker.problems import BY_NAME, NoBroker, require_extra
from qloom.errors import InputError, QloomError
from qloom.journal.home import home

try:
    import httpx
except ModuleNotFoundError:
    require_extra()
    raise

LOG = logging.getLogger("qloom.broker")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
AGAIN = (408, 429, 502, 503)  # the broker is busy, or is being restarted behind a proxy
PATIENCE_S = 5.0  # after that, the log says why a call waits
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)  # a connection costs more than a task


def find_token() -> str | None:
    """$QLOOM_BROKER_TOKEN, or the content of $QLOOM_BROKER_TOKEN_FILE, or of `token` in qloom's home."""
    if token := os.environ.get("QLOOM_BROKER_TOKEN"):
        return token.strip()
    given = os.environ.get("QLOOM_BROKER_TOKEN_FILE")
    path = Path(given) if given else home() / "token"
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        if given:
            raise InputError(f"there is no file {path}", hint="QLOOM_BROKER_TOKEN_FILE names it") from None
        return None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def find_munge() -> Munge | None:
    """Munge, if $QLOOM_BROKER_MUNGE is set: to munged's socket, or to 1 for the usual one."""
    given = os.environ.get("QLOOM_BROKER_MUNGE")
    return Munge(socket=given if "/" in given else None) if given else None


class Transport:
    """One connection to a broker: `unix:PATH` or a path, `http://HOST:PORT` or `https://...`."""

    def __init__(
        self,
        address: str | None = None,
        token: str | None = None,
        *,
        munge: Munge | None = None,
        retry_s: float = 300.0,
        http: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.address = address or os.environ.get("QLOOM_BROKER") or default_address()
        if self.address.startswith("/"):
            self.address = f"unix:{self.address}"
        self._munge = munge or (find_munge() if token is None else None)
        self._token = token if token is not None or self._munge is not None else find_token()
        self._retry_s = retry_s
        self._warned = False  # that the broker is away
        if self.address.startswith("unix:"):
            http = http or httpx.AsyncHTTPTransport(uds=self.address.removeprefix("unix:"), limits=LIMITS)
            base = "http://broker"
        else:
            base = self.address if "://" in self.address else f"http://{self.address}"
        try:
            self._http = httpx.AsyncClient(transport=http, base_url=base, limits=LIMITS, trust_env=False)
        except httpx.InvalidURL:
            raise InputError(f"{self.address!r} is no address", hint="unix:PATH or http://HOST:PORT") from None

    async def ask(
        self, method: str, path: str, body: Any = None, wait_s: float = 0.0, params: dict[str, Any] | None = None
    ) -> Any:
        """Send a request, again if need be, and return its answer; raises what the broker answered."""
        content = json.dumps(body).encode() if body is not None else b""
        query = {**(params or {}), **({"wait": wait_s} if wait_s else {})}
        began_s, pause_s = time.monotonic(), FIRST_PAUSE_S
        deadline_s = began_s + self._retry_s
        while True:
            request = self._http.build_request(
                method, path, content=content, params=query or None, timeout=httpx.Timeout(30.0, read=wait_s + 30.0)
            )
            if body is not None:
                request.headers["Content-Type"] = "application/json"
            if authorization := await self._authorization(request, content):
                request.headers["Authorization"] = authorization
            try:
                response = await self._http.send(request)
            except httpx.TransportError as error:
                if time.monotonic() + pause_s > deadline_s:
                    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                    raise NoBroker(
                        f"no broker answers at {self.address} ({what})", hint="is qloom broker serve running?"
                    ) from None
                if not self._warned and time.monotonic() > began_s + PATIENCE_S:
                    LOG.warning("no broker answers at %s: trying again", self.address)
                    self._warned = True
            else:
                self._warned = False
                if response.status_code not in AGAIN or time.monotonic() + pause_s > deadline_s:
                    return _read(response)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _authorization(self, request: httpx.Request, content: bytes) -> str | None:
        if self._munge is not None:  # one for each request: it is worth nothing the second time
            said = statement(request.method, request.url.raw_path.decode("latin-1"), content)
            return f"MUNGE {await asyncio.to_thread(self._munge.encode, said)}"
        return f"Bearer {self._token}" if self._token else None

    async def close(self) -> None:
        """Close the connection."""
        await self._http.aclose()


def _read(response: httpx.Response) -> Any:
    try:
        body = response.json()
    except ValueError:
        raise NoBroker(f"what answers at {response.url.host} is no broker", hint="check the address") from None
    if response.status_code < 400:
        return body
    known = isinstance(body, dict) and "message" in body
    kind = BY_NAME.get(str(body.get("error")), QloomError) if known else QloomError
    message = str(body["message"]) if known else f"the broker answered {response.status_code}"
    raise kind(message, hint=body.get("hint") if known else None)
