"""A real `qloom broker serve` in a process of its own, and what is known of its processes from outside."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx


class Served:
    """A broker on a unix socket; its caller runs the site."""

    def __init__(self, process: subprocess.Popen, path: Path) -> None:
        self.pid = process.pid
        self.path = str(path)
        self.http = self.client()

    def client(self) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=self.path)
        return httpx.Client(transport=transport, base_url="http://broker", timeout=240.0)

    def post(self, body, path: str = "/v1/tasks") -> httpx.Response:
        """Bytes are sent as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.post(path, content=content, headers={"Content-Type": "application/json"})

    def ended(self, task: str) -> dict:
        """A task once it is over."""
        while True:
            view = self.http.get(f"/v1/tasks/{task}/result?wait=60").json()
            if view["state"] in ("done", "failed", "cancelled"):
                return view

    def children(self, module: str) -> list[int]:
        """Processes that the broker started to run a module."""
        tasks = Path(f"/proc/{self.pid}/task")
        started = [pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
        return [int(pid) for pid in started if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]


def limit(pid: int, name: str) -> str:
    """The hard limit of a process, as /proc has it."""
    line = next(line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if line.startswith(name))
    return line[len(name) :].split()[1]


def peak_mib(pid: int) -> float:
    """The most memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def cpu_s(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serve(directory: Path, config: str, *, wrap=(), environment=None):
    """`wrap` are words before the command."""
    path = directory / "b.sock"
    head = f'listen = ["unix:{path}"]\nstore = "{directory}/broker.db"\nauth.methods = ["peer"]\n'
    file = directory / "broker.toml"
    file.write_text(head + f'auth.admins = ["{getpass.getuser()}"]\n' + config)
    log = (directory / "broker.log").open("wb")
    process = subprocess.Popen(
        [*wrap, sys.executable, "-m", "qloom", "broker", "serve", "--config", str(file)],
        stderr=log,
        stdout=log,
        env={**os.environ, "QLOOM_HOME": str(directory / "home"), **(environment or {})},
    )
    try:
        while not _answers(path):
            assert process.poll() is None, (directory / "broker.log").read_text()
            time.sleep(0.05)
        served = Served(process, path)
        with served.http:
            yield served
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def _answers(path: Path) -> bool:
    """It listens once it serves."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
