"""A real `qloom broker serve` with doors, and vendors' clients that run unmodified in environments of their own."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from qloom.broker.auth.tokens import TokenFile
from tests.broker.processes import ROOT, Service
from tests.security.server import free_port

CLIENTS = Path(__file__).parent / "clients"
PATIENCE_S = 250.0  # until a test gives up; nothing is measured with it


def environment_of(client: str) -> Path:
    """The interpreter of a client's environment; the test is skipped where there is none."""
    python = ROOT / f".venv-{client}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"NO ENVIRONMENT OF THE CLIENT {client}: scripts/client-environments {client}")
    return python


class DoorSite(Service):
    """A site whose users have tokens: ann in physics, bob in chemistry, and poor, whose project may use nothing."""

    def __init__(self, directory: Path, **values: Any) -> None:
        self.port = free_port()
        projects = {
            "physics": {"members": ["ann"]},
            "chemistry": {"members": ["bob"]},
            "empty": {"members": ["poor"], "budget_s": 0.001},
        }
        values = {"listen": [f"127.0.0.1:{self.port}"], "projects": projects, **values}
        super().__init__(directory, **values)
        tokens = TokenFile(directory / "tokens.json")
        members = {"ann": "physics", "bob": "chemistry", "poor": "empty"}
        self.tokens_of = {user: tokens.add(user, [project]) for user, project in members.items()}

    def start(self) -> None:
        """Start the service as an administrator would."""
        command = [Path(sys.executable).with_name("qloom"), "broker", "serve", "--config"]
        with open(self.directory / "log", "a") as log:
            config = self.directory / "broker.toml"
            self.process = subprocess.Popen([*command, config], stdout=log, stderr=log)
        deadline_s = time.monotonic() + PATIENCE_S
        while not self.answers():
            late = self.process.poll() is not None or time.monotonic() > deadline_s
            assert not late, (self.directory / "log").read_text()
            time.sleep(0.05)

    def url(self, door: str) -> str:
        return f"http://127.0.0.1:{self.port}/doors/{door}"

    def http(self, door: str, **headers: str) -> httpx.Client:
        """A bare client of a door."""
        return httpx.Client(base_url=self.url(door), headers=headers, timeout=PATIENCE_S)

    def rows(self, user: str) -> list[dict[str, Any]]:
        """Tasks of a user in the store."""
        with sqlite3.connect(f"file:{self.store}?mode=ro", uri=True) as database:
            database.row_factory = sqlite3.Row
            found = database.execute("SELECT * FROM tasks WHERE user = ? ORDER BY number", (user,))
            return [dict(row) for row in found]

    def own(self, user: str) -> httpx.Client:
        """A client of our own API."""
        headers = {"Authorization": f"Bearer {self.tokens_of[user]}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=PATIENCE_S)

    def run(self, client: str, scenario: str, user: str = "ann") -> Any:
        """What a scenario of `clients/run_CLIENT.py` found, run in the client's own environment."""
        python = environment_of(client)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("DWAVE", "IQM", "PYTHON"))}
        clean |= {
            "HOME": str(self.directory),
            "XDG_CACHE_HOME": str(self.directory / "cache"),
            "QISKIT_PARALLEL": "FALSE",
        }
        token = self.tokens_of.get(user, user)
        command = [python, CLIENTS / f"run_{client}.py", scenario, self.url(client), token]
        done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])
