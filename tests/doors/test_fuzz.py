"""Recorded requests of vendors' clients, mutated: no answer is a 5xx, and nothing that a vendor rejects is taken."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from qloom.broker.auth.callers import Authenticator
from qloom.broker.auth.tokens import TokenFile
from qloom.broker.clock import ServiceClock
from qloom.broker.config_parts import LimitsPart
from qloom.broker.doors.annealers import graph_id
from qloom.broker.doors.door import BrokerParts, named_uuid
from qloom.broker.doors.registry import DOORS
from qloom.broker.doors.translating import LoopTranslations
from qloom.broker.server.http import make_app
from qloom.device import DeviceTarget
from qloom.devices.emulated import EmulatedDevice
from qloom.devices.profiles import load_profile
from qloom.model import Payload, json_text
from qloom.world import UnixClock
from tests.broker.fakes import broker_on
from tests.doors.site import CLIENTS, environment_of

DATA = Path(__file__).parent / "data"
REQUESTS = 1000
ODD = [None, True, -1, 0, 1e308, 2**63, "", "x", "\u202e", "nan", [], {}, [[]], {"a": 1}, "A" * 5000, -0.5]


class InstantAnswers:
    """Answers at once, and keeps what it was given."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.given = answer, []

    def seconds(self, payload: Payload) -> float:
        return 0.0

    def begin(self, token: str, payload: Payload, *, crash: bool = False) -> None:
        return None

    def compute(self, token: str, payload: Payload) -> Any:
        self.given.append(payload)
        return json_text(self.answer(payload))

    async def close(self) -> None:
        pass


def samples(payload: Payload) -> dict[str, Any]:
    variables = payload.value["variable_labels"]
    rows = [[0] * len(variables)]
    return {"variables": variables, "samples": rows, "energies": [0.0], "occurrences": [payload.shots]}


def counts(payload: Payload) -> list[dict[str, Any]]:
    return [{"counts": {}, "registers": []} for entry in payload.value for _ in entry["rows"]]


ANNEALER = replace(
    load_profile("annealer"), name="Advantage_mock1.0", target=DeviceTarget(8, graph="chimera 1 1 4"), qubits=8
)
MACHINE = load_profile("helmi")
LINE = replace(MACHINE.target or DeviceTarget(3), qubits=3, couplings=((0, 1), (1, 2)))
MACHINE = replace(MACHINE, name="mockq", target=LINE)
DEVICES = {"dwave": (ANNEALER, samples), "iqm": (MACHINE, counts)}
CREDENTIALS = {"dwave": ("X-Auth-Token", "{}"), "iqm": ("Authorization", "Bearer {}")}
RECORDED_SET = "cd4dd889-b88b-4370-ba01-eb8262ad9c53"


def recording(door: str) -> list[dict[str, Any]]:
    """The requests of a client, made for the device that they are sent to here."""
    current = named_uuid("calibration", MACHINE.name, "")
    text = (DATA / f"{door}.jsonl").read_text().replace("01abcdef", graph_id(ANNEALER)).replace(RECORDED_SET, current)
    return [json.loads(line) for line in text.splitlines()]


@contextlib.asynccontextmanager
async def open_door(door: str, directory: Path):
    """Yields what the device was given, and a client with a credential."""
    description, answer = DEVICES[door]
    answers = InstantAnswers(answer)
    device = EmulatedDevice(description, answers, UnixClock())
    broker = broker_on([device], directory / "s.db", ServiceClock())
    await broker.start()
    tokens = TokenFile(directory / "tokens.json")
    token = tokens.add("ann", ["physics"])
    opened = DOORS[door](BrokerParts(broker.tasks, broker.devices, LoopTranslations(), 2**20), [description])
    limits = LimitsPart(requests_per_s=1e6, burst=1e6, failures_per_s=1e6, failures_burst=1e6)
    app = make_app(broker, Authenticator(("token",), tokens, {"physics": None}), limits, doors=[opened])
    name, form = CREDENTIALS[door]
    base = f"http://broker{opened.path.removesuffix('/api/v1')}"
    try:
        transport = httpx.ASGITransport(app)
        yield answers.given, httpx.AsyncClient(transport=transport, base_url=base, headers={name: form.format(token)})
    finally:
        await broker.close()


def mutated(request: dict[str, Any], draw: random.Random) -> tuple[str, str, dict[str, str], bytes]:
    """A request with one to three changes, in its target, its headers or its body."""
    method, target = request["request"].split(" ", 1)
    headers, body = dict(request["headers"]), request["body"]
    headers.pop("Content-Encoding", None)  # the recording has the plain body
    for _ in range(draw.randint(1, 3)):
        what = draw.choice(["json", "json", "json", "bytes", "target", "method", "header"])
        if what == "json" and body:
            with contextlib.suppress(ValueError):
                body = json.dumps(changed(json.loads(body), draw))
        elif what == "bytes" and body:
            at = draw.randrange(len(body))
            body = body[:at] + draw.choice(["", chr(draw.randrange(1, 300)), body[at : at + 40] * 2]) + body[at + 1 :]
        elif what == "target":
            at = draw.randrange(1, len(target))
            target = target[:at] + draw.choice(["", "%00", "/", "..", "?x=1", "%ff", "9"]) + target[at + 1 :]
        elif what == "method":
            method = draw.choice(["GET", "POST", "DELETE", "PUT"])
        elif what == "header":
            name = draw.choice(["Content-Encoding", "Content-Type", "Accept"])
            headers[name] = draw.choice(["deflate", "gzip", "br", "", "text/plain"])
    return method, target, headers, body.encode(errors="replace")


def changed(value: Any, draw: random.Random) -> Any:
    """One part of a JSON value replaced, removed or doubled."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        if draw.random() < 0.15:
            return {name: part for name, part in value.items() if name != key}
        return {**value, key: changed(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.9:
        at = draw.randrange(len(value))
        if draw.random() < 0.15:
            return [*value[:at], value[at], *value[at:]]
        return [*value[:at], changed(value[at], draw), *value[at + 1 :]]
    return draw.choice(ODD)


@pytest.mark.parametrize("door", DEVICES)
def test_mutated_requests_are_answered_and_leave_the_service_as_it_was(door, tmp_path):
    draw, known = random.Random(f"{door} 1"), recording(door)

    async def send() -> tuple[list[Any], int]:
        taken: list[Any] = []
        async with open_door(door, tmp_path) as (given, client):
            for _ in range(REQUESTS):
                method, target, headers, body = mutated(draw.choice(known), draw)
                before = len(given)
                async with asyncio.timeout(60):
                    answer = await client.request(method, target, headers=headers, content=body)
                assert answer.status_code < 500, (method, target, body, answer.text)
                if answer.status_code >= 400:
                    answer.json()  # in the vendor's form
                elif method == "POST":
                    taken += accepted(door, body, answer.json())
                assert answer.status_code < 400 or len(given) == before
            for request in known:
                if request["body"]:
                    method, target = request["request"].split(" ", 1)
                    content = request["body"].encode()
                    right = await client.request(method, target, content=content)
                    assert right.status_code == request["status"], right.text
            await client.aclose()
            return taken, len(given)

    taken, count = asyncio.run(send())
    assert count > 3
    (tmp_path / "taken").write_text("".join(json.dumps(one) + "\n" for one in taken))
    rejected = vendor_rejects(door, tmp_path / "taken")
    assert rejected == []


def accepted(door: str, body: bytes, answer: Any) -> list[Any]:
    """The parts of a body that were taken."""
    if door != "dwave":
        return [json.loads(body)]
    return [one for one, made in zip(json.loads(body), answer, strict=True) if "error_code" not in made]


def vendor_rejects(door: str, taken: Path) -> list[Any]:
    """What the client's own models reject of the bodies that were taken; nothing is known without its environment."""
    python = CLIENTS.parents[2] / f".venv-{door}" / "bin" / "python"
    if not python.exists():
        return []
    with taken.open() as lines:
        command = [environment_of(door), CLIENTS / f"run_{door}.py", "check", "-", "-"]
        done = subprocess.run(command, stdin=lines, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def dwave_problem() -> dict[str, Any]:
    """The first problem in the recording."""
    return next(json.loads(one["body"])[0] for one in recording("dwave") if one["request"].startswith("POST"))


def iqm_job(shots: str) -> bytes:
    measure = {"name": "measure", "locus": ["QB1"], "args": {"key": "k"}}
    circuits = json.dumps([{"name": "one", "instructions": [measure]}])
    return f'{{"circuits": {circuits}, "shots": {shots}}}'.encode()


def hostile_requests() -> list[tuple[str, str, str, bytes]]:
    problem = dwave_problem()
    problem["params"] = {"num_reads": 10**400, "annealing_time": 20.0}
    return [
        ("dwave", "POST", "/problems/", json.dumps([problem]).encode()),
        ("dwave", "DELETE", "/problems/", b"[" * 30000),
        ("iqm", "POST", "/api/v1/jobs/mockq/circuit", iqm_job("9" * 4300)),
    ]


@pytest.mark.parametrize(("door", "method", "path", "body"), hostile_requests(), ids=["reads", "depth", "shots"])
def test_figures_and_depths_beyond_what_python_takes_are_refused(door, method, path, body, tmp_path):
    async def send() -> httpx.Response:
        async with open_door(door, tmp_path) as (_, client), client:
            return await client.request(method, path, content=body)

    answer = asyncio.run(send())
    said = answer.json()
    assert (said[0] if isinstance(said, list) else {"error_code": answer.status_code, **said})["error_code"]
    assert answer.status_code < 500


def test_a_list_of_too_many_problems_is_refused_before_they_are_read(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr("qloom.broker.doors.dwave.problem_task", lambda problem, _: read.append(problem))

    async def send() -> httpx.Response:
        async with open_door("dwave", tmp_path) as (_, client), client:
            return await client.post("/problems/", content=json.dumps([0] * 4000))

    assert asyncio.run(send()).status_code == 413
    assert read == []
