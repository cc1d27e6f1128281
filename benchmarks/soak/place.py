"""One broker process with its devices, users and figures."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from benchmarks.soak.findings import Outages
from benchmarks.soak.patience import within

from qloom.broker.auth.tokens import TokenFile
from qloom.broker.client.client import BrokerClient
from qloom.broker.config import BrokerConfig

START_S = END_S = 60.0  # of its process: a broker that hangs while it stops ends itself sooner
SHARED = "qpu"  # the device with sessions
LIMIT_S = 3.0  # of one execution there; far longer than a task takes, for a machine that is busy
PROMISE = {"longest_s": 0.2, "limit_s": LIMIT_S, "shares": 4, "outside_limit": 1, "retries": 1}
CALIBRATING: dict[str, Any] = {
    "kind": "annealing",
    "name": "calibrating",
    "calibration": [{"every_s": 12, "for_s": 2}],
}


class Place:
    """A broker that can be killed and started again, and who may use it."""

    def __init__(self, directory: Path, *, slurm: Mapping[str, str] | None = None) -> None:
        self.name = f"the broker in {directory.name}"
        self.directory, self._environment = directory, {**os.environ, **(slurm or {})}
        self.needs_job = slurm is not None
        self.devices = [SHARED] if self.needs_job else [SHARED, str(CALIBRATING["name"])]
        self.outages = Outages()
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        self.config = directory / "broker.toml"
        self.config.write_text(_toml(self._values()))
        tokens = TokenFile(BrokerConfig(store=self.store).tokens_path)
        user = getpass.getuser() if self.needs_job else "ann"  # jobs belong to users of this machine
        self.tokens = {
            "honest": tokens.add(user, ["honest"]),
            "hostile": tokens.add("mallory", ["hostile"]),
            "admin": tokens.add("operator", [], "admin"),
        }

    @property
    def store(self) -> Path:
        """Its store."""
        return self.directory / "broker.db"

    def _values(self) -> dict[str, Any]:
        devices: list[dict[str, Any]] = [{"kind": "annealing", "name": SHARED}]
        return {
            "listen": [f"unix:{self.directory}/b.sock", f"127.0.0.1:{self.port}"],
            "store": str(self.store),
            "poll_s": 0.5,
            "devices": devices if self.needs_job else [*devices, CALIBRATING],
            "promises": {SHARED: PROMISE},
            "projects": {
                "honest": {},
                "hostile": {"max_tasks": 10, "max_sessions": 1},
            },
            "limits": {"max_bytes": 2**20, "requests_per_s": 200.0, "burst": 400.0},
            "slurm": {"require_job": self.needs_job, "check_s": 2.0, "timeout_s": 5.0},
        }

    def client(self, user: str) -> BrokerClient:
        """A client of one of the users, by the unix socket."""
        return BrokerClient(f"unix:{self.directory}/b.sock", self.tokens[user], retry_s=120.0)

    # The process

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        self._spawn()
        async with within(START_S, self.name, "its start"):
            while not await self._answers():
                if not self.is_alive():
                    raise RuntimeError(f"the broker ended at its start:\n{self.last_lines()}")
                await asyncio.sleep(0.05)

    def _spawn(self) -> None:
        with open(self.directory / "log", "ab") as log:
            command = [sys.executable, "-m", "qloom", "broker", "serve", "--config", str(self.config)]
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    async def _answers(self) -> bool:
        transport = httpx.AsyncHTTPTransport(uds=f"{self.directory}/b.sock")
        async with httpx.AsyncClient(transport=transport, base_url="http://b", timeout=2.0) as client:
            try:
                return (await client.get("/healthz")).status_code == 200
            except httpx.TransportError:
                return False

    async def end(self, number: signal.Signals) -> int | None:
        """Send it a signal and wait for its end; returns its exit code, or None if it had to be killed."""
        assert self._process is not None
        self._process.send_signal(number)
        until_s = time.monotonic() + END_S
        while self._process.poll() is None:
            if time.monotonic() > until_s:
                self.kill_if_alive()
                return None
            await asyncio.sleep(0.05)
        return self._process.returncode

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal that must not end it."""
        os.kill(self.pid, number)

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def last_lines(self, count: int = 10) -> str:
        """The end of its log."""
        return "\n".join((self.directory / "log").read_text(errors="replace").splitlines()[-count:])

    def kill_if_alive(self) -> None:
        """Leave nothing behind."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(END_S)

    # Figures

    def memory_mb(self) -> float:
        """Resident memory of the broker."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def descriptors(self) -> int:
        """Open files and sockets of the broker."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _toml(values: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    return json.dumps(value)
