"""Clients that mean harm, from loopback addresses of their own. None may learn, get or break anything."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import Awaitable, Callable
from random import Random

from benchmarks.soak.crew import Crew
from benchmarks.soak.findings import Findings
from benchmarks.soak.place import SHARED, Place

ANSWER_S = 10.0  # whoever is not answered by then goes away
ADDRESSES = [f"127.0.0.{number}" for number in range(66, 70)]
TELLS_OF_TROUBLE = (503, 507)  # the only answers above 499 that may come
Attack = Callable[[], Awaitable[None]]


class Hostile:
    """Attacks on one broker, one after the other."""

    def __init__(self, place: Place, findings: Findings, random: Random) -> None:
        self._place, self._findings, self._random = place, findings, random
        self.crew = Crew()

    async def attack(self, who: str) -> None:
        """One attack after the other, drawn at random."""
        attacks: dict[str, Attack] = {
            "half-open": self.half_open,
            "slow bodies": self.slow_body,
            "forged": self.forged,
            "bombs": self.bombs,
            "oversize": self.oversize,
            "floods": self.flood,
            "holding": self.hold,
            "snooping": self.snoop,
        }
        while True:
            async with self.crew.turn(who) as turn:
                name = self._random.choice(list(attacks))
                turn.now(name)
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # a broker that is down, or hangs up
                    await attacks[name]()
                    self._findings.attacks[name] += 1
            await asyncio.sleep(self._random.uniform(0.0, 0.1))

    # Attacks

    async def half_open(self) -> None:
        """Connections that begin a request and say no more."""
        opened = [await self._connect() for _ in range(20)]
        for _, writer in opened:
            writer.write(b"POST /v1/tasks HTTP/1.1\r\nHost: b\r\nContent-Le")
        await asyncio.sleep(self._random.uniform(0.2, 1.0))
        for _, writer in opened:
            writer.transport.abort()

    async def slow_body(self) -> None:
        """A body that comes byte by byte, and never whole."""
        _, writer = await self._connect()
        try:
            writer.write(self._head("POST", "/v1/tasks", b"x" * 1000, self._place.tokens["hostile"]))
            for _ in range(10):
                writer.write(b"[")
                async with asyncio.timeout(ANSWER_S):
                    await writer.drain()
                await asyncio.sleep(0.1)
        finally:
            writer.transport.abort()

    async def forged(self) -> None:
        """Credentials that are wrong in many ways."""
        token = self._place.tokens["honest"]
        for value in (
            f"Bearer qloom_{self._random.getrandbits(256):064x}",
            f"Bearer {token[:-1]}",
            f"Bearer {token}x",
            f"MUNGE {token}",
            "MUNGE MUNGE:AwQFAAA:",
            "Basic cm9vdDpyb290",
            "Bearer " + "x" * 5000,
        ):
            status = await self._ask("GET", "/v1/devices", authorization=value)
            if status is not None and status < 400:
                self._findings.violate(f"a forged credential was answered with {status}")

    async def bombs(self) -> None:
        """Bodies that cost more to read than to send."""
        token = self._place.tokens["hostile"]
        deep = b'{"kind": "delay", "seconds": 0, "body": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        digits = b'{"kind": "delay", "seconds": 0, "body": ' + b"9" * 500_000 + b"}"
        keys = json.dumps({f"key{number}": number for number in range(20_000)}).encode()
        circuit = "OPENQASM 3.0;\nqubit[99999999] q;\n" + "h q[0];\n" * 1000
        qasm = json.dumps({"kind": "openqasm3", "body": circuit}).encode()
        zipped = gzip.compress(b"0" * 10_000_000)
        for body in (deep, digits, keys, qasm, zipped, b"\xff\xfe" * 100, b'{"kind": NaN}'):
            status = await self._ask("POST", "/v1/tasks", body, f"Bearer {token}")
            if status in (200, 201):
                self._findings.counts["bombs that were accepted"] += 1

    async def oversize(self) -> None:
        """More bytes than the limit, announced and not."""
        token = self._place.tokens["hostile"]
        reader, writer = await self._connect()
        try:
            head = f"POST /v1/tasks HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer {token}\r\n"
            if self._random.random() < 0.5:
                writer.write(f"{head}Content-Length: 1000000000000\r\n\r\n".encode())
            else:
                writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
                for _ in range(40):
                    writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                    async with asyncio.timeout(ANSWER_S):
                        await writer.drain()
            status = await self._status(reader)
            if status is not None and status < 400:
                self._findings.violate(f"a body beyond the limit was answered with {status}")
        except TimeoutError:
            pass
        finally:
            writer.transport.abort()

    async def flood(self) -> None:
        """As many requests as one connection takes."""
        reader, writer = await self._connect()
        try:
            for _ in range(300):
                writer.write(self._head("GET", "/v1/queue", b"", self._place.tokens["hostile"]))
            async with asyncio.timeout(ANSWER_S):
                await writer.drain()
            await self._status(reader)
        except TimeoutError:
            pass
        finally:
            writer.transport.abort()

    async def hold(self) -> None:
        """A session that is asked for and not used, and as many tasks as are taken."""
        token = f"Bearer {self._place.tokens['hostile']}"
        session = json.dumps({"device": SHARED}).encode()
        await self._ask("POST", "/v1/sessions", session, token)
        for _ in range(20):
            task = json.dumps({"kind": "delay", "body": 0, "seconds": 0.2, "device": SHARED}).encode()
            await self._ask("POST", "/v1/tasks", task, token)

    async def snoop(self) -> None:
        """Look at what belongs to others, and try to end it."""
        token = f"Bearer {self._place.tokens['hostile']}"
        known = list(self._findings.accepted.values())[-50:]
        for task, _ in self._random.sample(known, min(3, len(known))):
            for method, path in (("GET", f"/v1/tasks/{task}/result"), ("DELETE", f"/v1/tasks/{task}")):
                status = await self._ask(method, path, authorization=token)
                if status is not None and status < 400:
                    self._findings.violate(f"{method} of another user's task was answered with {status}")
        status = await self._ask("POST", f"/v1/devices/{SHARED}/drain", authorization=token)
        if status is not None and status < 400:
            self._findings.violate("a user who is no administrator drained a device")

    # HTTP by hand

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = self._random.choice(ADDRESSES)
        async with asyncio.timeout(ANSWER_S):
            return await asyncio.open_connection("127.0.0.1", self._place.port, local_addr=(address, 0))

    def _head(self, method: str, path: str, body: bytes, token: str) -> bytes:
        lines = (f"{method} {path} HTTP/1.1", "Host: b", f"Authorization: Bearer {token}")
        return "\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode()

    async def _ask(self, method: str, path: str, body: bytes = b"", authorization: str = "") -> int | None:
        """One request; returns its status, or None if the broker hung up or did not answer."""
        reader, writer = await self._connect()
        try:
            lines = (f"{method} {path} HTTP/1.1", "Host: b", f"Authorization: {authorization}", "Connection: close")
            head = "\r\n".join((*lines, "Content-Type: application/json", f"Content-Length: {len(body)}", "", ""))
            writer.write(head.encode() + body)
            return await self._status(reader)
        finally:
            writer.transport.abort()

    async def _status(self, reader: asyncio.StreamReader) -> int | None:
        try:
            async with asyncio.timeout(ANSWER_S):
                line = await reader.readline()
        except (TimeoutError, OSError, ValueError):
            return None
        words = line.split()
        if len(words) < 2 or not words[1].isdigit():
            return None
        status = int(words[1])
        self._findings.statuses[status] += 1
        if status >= 500 and status not in TELLS_OF_TROUBLE:
            self._findings.violate(f"an attack was answered with {status}")
        return status
