"""Starting, killing and waiting for a real service."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Service:
    """The service as a process, on a unix socket."""

    def __init__(self, directory: Path, module: str = "tests.broker.service", **values) -> None:
        self.directory, self.module = directory, module
        self.socket = directory / "b.sock"
        self.tasks = directory / "tasks"
        self.store = directory / "broker.db"
        self.dies = directory / "dies"
        config = {
            "listen": [f"unix:{self.socket}"],
            "store": str(self.store),
            "devices": [{"name": "q", "directory": str(self.tasks), "dies": str(self.dies)}],
            "limits": {"requests_per_s": 1e6, "burst": 1e6},
            "auth": {"admins": [pwd.getpwuid(os.geteuid()).pw_name]},
            **values,
        }
        self.listen = config["listen"][0]
        (directory / "broker.toml").write_text(toml(config))
        self.process: subprocess.Popen | None = None
        self.prefix: list[str] = []  # of the command, such as `prlimit --nofile=64`

    @property
    def address(self) -> str:
        return self.listen

    def answers(self) -> bool:
        unix = self.listen.startswith("unix:")
        place = str(self.socket) if unix else ("127.0.0.1", int(self.listen.rpartition(":")[2]))
        with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as probe:
            try:
                probe.connect(place)
                probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")
                return probe.recv(100).startswith(b"HTTP/1.1 200")
            except OSError:
                return False

    def start(self) -> None:
        with open(self.directory / "log", "a") as log:
            command = [*self.prefix, sys.executable, "-m", self.module, str(self.directory / "broker.toml")]
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            if self.process.poll() is not None:
                raise AssertionError((self.directory / "log").read_text()[-3000:])
            if self.answers():
                return
            time.sleep(0.02)
        raise AssertionError("the service did not start")

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(20)


def toml(values: dict) -> str:
    """Just enough TOML: inline tables."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in values.items())


def _value(value) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    return json.dumps(value)
