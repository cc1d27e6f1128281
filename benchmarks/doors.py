"""From submission to result through each door, and through our own API, in the same run: python benchmarks/doors.py

One broker (`qloom broker serve`, on loopback, its store in a temporary directory) with emulated devices that take no
time of their own. The same problem goes in turn through our own API and through a door; both ways are bare HTTP, so
that no client's pause between two polls counts: submission, one long poll or question, and the result. What is
measured is therefore the broker with its door, the solver's computation included, which is the same on both ways.
"""

from __future__ import annotations

import base64
import json
import math
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from qloom.broker.auth.tokens import TokenFile

TASKS = 60
CONFIG = """
listen = ["127.0.0.1:{port}"]
store = "{store}"
limits = {{ requests_per_s = 1e6, burst = 1e6 }}
projects = {{ physics = {{ members = ["ann"] }} }}
devices = [
  {{ kind = "annealing", name = "annealer", profile = "chimera", set_up_s = 0.0, per_shot_s = 0.0 }},
  {{ kind = "aer", name = "gates", profile = "iqm-20", set_up_s = 0.0, per_shot_s = 0.0 }},
]
doors = {{ dwave = {{ devices = ["annealer"] }}, iqm = {{ devices = ["gates"] }} }}
"""
QUBO = {"linear": [[0, -1.0], [4, -1.0]], "quadratic": [[0, 4, 2.0]], "offset": 0.0}
BELL = """OPENQASM 3.0;
include "stdgates.inc";
gate r(p0, p1) _q { U(p0, -pi/2 + p1, pi/2 - p1) _q; }
qubit[20] q;
bit[2] c;
r(pi/2, -pi/2) q[0];
r(pi/2, -pi/2) q[1];
cz q[0], q[1];
r(pi/2, pi/2) q[1];
c[0] = measure q[0];
c[1] = measure q[1];
"""
HALF = math.pi / 2
INSTRUCTIONS = [
    {"name": "prx", "locus": ["QB1"], "args": {"angle": HALF, "phase": -HALF}},
    {"name": "prx", "locus": ["QB2"], "args": {"angle": HALF, "phase": -HALF}},
    {"name": "cz", "locus": ["QB1", "QB2"], "args": {}},
    {"name": "prx", "locus": ["QB2"], "args": {"angle": HALF, "phase": HALF}},
    {"name": "measure", "locus": ["QB1", "QB2"], "args": {"key": "m"}},
]


def own(client: httpx.Client, task: dict[str, Any]) -> None:
    """Submit, and wait for the result."""
    made = client.post("/v1/tasks", json={**task, "shots": 100}).raise_for_status().json()
    done = client.get(f"/v1/tasks/{made['id']}/result", params={"wait": 60}).raise_for_status().json()
    if done["state"] != "done":
        raise SystemExit(f"the task is {done['state']}: {done['reason']}")


def dwave(client: httpx.Client) -> None:
    """Submit, poll, fetch, as dwave-cloud-client does."""
    linear = [math.nan] * 2048
    linear[0] = linear[4] = -1.0
    data = {"format": "qp", "lin": _doubles(linear), "quad": _doubles([2.0]), "offset": 0.0}
    problem = {"solver": {"name": "annealer"}, "data": data, "type": "qubo", "params": {"num_reads": 100}}
    [made] = client.post("/doors/dwave/problems/", json=[problem]).raise_for_status().json()
    client.get("/doors/dwave/problems/", params={"id": made["id"], "timeout": 30}).raise_for_status()
    if "answer" not in client.get(f"/doors/dwave/problems/{made['id']}/").json():
        raise SystemExit("the problem has no answer")


def iqm(client: httpx.Client) -> None:
    """Submit, ask until the job is completed, without a pause since the protocol has no long poll, and fetch."""
    job = {"circuits": [{"name": "bell", "instructions": INSTRUCTIONS}], "shots": 100}
    made = client.post("/api/v1/jobs/gates/circuit", json=job).raise_for_status().json()
    while made["status"] in ("waiting", "processing"):
        made = client.get(f"/api/v1/jobs/{made['id']}").raise_for_status().json()
    client.get(f"/api/v1/jobs/{made['id']}/artifacts/measurements").raise_for_status()


def _doubles(values: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}d", *values)).decode()


def _seconds(call: Callable[[], None]) -> float:
    begin_s = time.perf_counter()
    call()
    return time.perf_counter() - begin_s


def main() -> None:
    """Print the median of both ways for each door."""
    with tempfile.TemporaryDirectory() as directory, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        path = Path(directory)
        (path / "broker.toml").write_text(CONFIG.format(port=port, store=path / "broker.db"))
        token = TokenFile(path / "tokens.json").add("ann", ["physics"])
        qloom = str(Path(sys.executable).with_name("qloom"))
        command = [qloom, "broker", "serve", "--config", str(path / "broker.toml")]
        broker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            headers = {"Authorization": f"Bearer {token}", "X-Auth-Token": token}
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120) as client:
                _wait_for(client)
                _compare("dwave", client, lambda: own(client, {"kind": "qubo", "body": QUBO}), lambda: dwave(client))
                _compare("iqm", client, lambda: own(client, {"kind": "openqasm3", "body": BELL}), lambda: iqm(client))
        finally:
            broker.terminate()
            broker.wait()


def _wait_for(client: httpx.Client) -> None:
    for _ in range(600):
        try:
            client.get("/healthz").raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise SystemExit("the broker does not answer")


def _compare(door: str, client: httpx.Client, ours: Callable[[], None], theirs: Callable[[], None]) -> None:
    for _ in range(3):  # solvers and translators start
        ours()
        theirs()
    pairs = [(_seconds(ours), _seconds(theirs)) for _ in range(TASKS)]
    own_ms, door_ms = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
    ratio = statistics.median(theirs_s / ours_s for ours_s, theirs_s in pairs)
    row = {"door": door, "tasks": TASKS, "own_ms": round(own_ms, 1), "door_ms": round(door_ms, 1)}
    print(json.dumps({**row, "ratio": round(ratio, 2)}))


if __name__ == "__main__":
    main()
