"""How the broker serves others while large payloads are submitted: `python -m benchmarks.storm`.

A real `qloom broker serve` on a unix socket. Some clients submit QUBOs of 2 and 8 MB and 3.9 MB of OpenQASM 3 to
devices that are drained, so that what is measured is reading, checking and storing them; beside them one client asks
/healthz every 20 ms, and one runs short tasks in a session, whose wait is promised. Ends after the given seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

PROMISED_S, EXECUTES_S = 2.0, 0.2
CONFIG = f"""
listen = ["unix:{{socket}}"]
store = "{{directory}}/broker.db"
auth.methods = ["peer"]
auth.admins = ["{{user}}"]
promise = {{{{ longest_s = 0.5, promised_wait_s = {PROMISED_S} }}}}
devices = [
    {{{{ kind = "annealing", name = "shared", set_up_s = {EXECUTES_S}, per_shot_s = 1e-9 }}}},
    {{{{ kind = "annealing", name = "away", set_up_s = 0.1, per_shot_s = 1e-9 }}}},
    {{{{ kind = "qaoa", name = "gates", set_up_s = 0.1, per_shot_s = 1e-9, qubits = 20 }}}},
]
"""


def qubo(couplings: int, variables: int = 5000) -> bytes:
    """A large task, as a client sends it."""
    dice = random.Random(couplings)
    linear = [[i, dice.random()] for i in range(variables)]
    pairs = [dice.sample(range(variables), 2) for _ in range(couplings)]
    quadratic = [[u, v, round(dice.random(), 3)] for u, v in pairs]
    return json.dumps(
        {"kind": "qubo", "body": {"linear": linear, "quadratic": quadratic}, "device": "away", "shots": 1}
    ).encode()


def circuit(characters: int) -> bytes:
    """Many gates on 20 qubits."""
    gates = "cu(0.123456789, 0.123456789, 0.123456789, 0.123456789) q[3], q[7];\n"
    text = 'OPENQASM 3.0;\ninclude "stdgates.inc";\nqubit[20] q;\nbit[20] c;\n'
    text += gates * ((characters - len(text)) // len(gates)) + "c = measure q;\n"
    return json.dumps({"kind": "openqasm3", "body": text, "device": "gates", "shots": 1}).encode()


@contextlib.asynccontextmanager
async def service(directory: Path) -> AsyncIterator[str]:
    """The socket of a broker that was started for this."""
    socket = directory / "broker.sock"
    config = directory / "broker.toml"
    config.write_text(CONFIG.format(socket=socket, directory=directory, user=getpass.getuser()))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qloom", "broker", "serve", "--config", str(config)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        while not socket.exists():
            if process.returncode is not None:
                raise SystemExit("the broker did not start")
            await asyncio.sleep(0.05)
        yield str(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()


def client(socket: str) -> httpx.AsyncClient:
    """With patience: what is measured may take long."""
    transport = httpx.AsyncHTTPTransport(uds=socket)
    return httpx.AsyncClient(transport=transport, base_url="http://broker", timeout=300.0)


async def storm(socket: str, until_s: float, bodies: list[bytes], answers: dict[int, int]) -> None:
    """One submission after the other."""
    async with client(socket) as http:
        turn = 0
        while time.perf_counter() < until_s:
            headers = {"Content-Type": "application/json"}
            response = await http.post("/v1/tasks", content=bodies[turn % len(bodies)], headers=headers)
            answers[response.status_code] = answers.get(response.status_code, 0) + 1
            turn += 1


async def healthz(socket: str, until_s: float) -> list[float]:
    """Seconds of each answer; those that should have been asked for meanwhile count as well."""
    taken: list[float] = []
    async with client(socket) as http:
        while (began_s := time.perf_counter()) < until_s:
            (await http.get("/healthz")).raise_for_status()
            took_s = time.perf_counter() - began_s
            taken += [took_s - missed * 0.02 for missed in range(1 + int(took_s / 0.02))]
            await asyncio.sleep(max(0.0, 0.02 - took_s))
    return taken


async def sessions(socket: str, until_s: float, states: dict[str, int]) -> list[float]:
    """Seconds from the submission of a short task in a session to its end, less what it executes."""
    waits: list[float] = []
    async with client(socket) as http:
        session: dict[str, Any] = (await http.post("/v1/sessions?wait=30", json={"device": "shared"})).json()
        task = {"kind": "delay", "body": None, "seconds": EXECUTES_S, "session": session["id"]}
        while (began_s := time.perf_counter()) < until_s:
            done = (await http.post("/v1/tasks?wait=60", json=task)).json()
            states[done["state"]] = states.get(done["state"], 0) + 1
            waits.append(time.perf_counter() - began_s - EXECUTES_S)
    return waits


async def measure(seconds: float, clients: int) -> dict[str, Any]:
    """One storm."""
    bodies = [qubo(100_000), circuit(3_900_000), qubo(400_000)]
    answers: dict[int, int] = {}
    states: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="qloom-storm-") as directory:
        async with service(Path(directory)) as socket:
            async with client(socket) as http:
                for device in ("away", "gates"):
                    (await http.post(f"/v1/devices/{device}/drain")).raise_for_status()
            until_s = time.perf_counter() + seconds
            senders = [storm(socket, until_s, bodies[n:] + bodies[:n], answers) for n in range(clients)]
            found = await asyncio.gather(healthz(socket, until_s), sessions(socket, until_s, states), *senders)
    health, waits = found[0] or [], found[1] or []
    return {
        "sizes": [len(body) for body in bodies],
        "submissions": answers,
        "healthz_median_ms": round(statistics.median(health) * 1e3, 1),
        "healthz_worst_ms": round(max(health) * 1e3, 1),
        "session_tasks": states,
        "session_worst_wait_s": round(max(waits, default=float("nan")), 2),
        "promised_s": PROMISED_S,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storm", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=3, help="who submit large payloads at once")
    options = parser.parse_args()
    print(json.dumps(asyncio.run(measure(options.seconds, options.clients)), indent=2))


if __name__ == "__main__":
    main()
