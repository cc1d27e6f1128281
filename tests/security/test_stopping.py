"""A broker that is told to stop: whoever waits is answered, nobody with 500, and it ends in bounded time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from qloom.broker.client.client import BrokerClient
from tests.security.served import serve
from tests.security.server import Attacked, answer, attacked, form, until


@pytest.fixture
def drained(tmp_path):
    """A broker whose device starts nothing."""
    with attacked(tmp_path) as service:
        with service.client("root") as root:
            assert root.post("/v1/devices/q/drain").status_code == 200
        yield service


def submit(service: Attacked) -> str:
    with service.client("ann") as ann:
        return str(ann.post("/v1/tasks", json=form()).json()["id"])


def wait_on(service: Attacked, path: str):
    """A request that waits for a minute; it has reached the broker when this returns."""
    waiting = service.connect()
    waiting.sendall(service.head("ann", f"GET {path}?wait=60") + b"\r\n")
    with service.client("ann") as ann:  # the loop has had a turn since
        assert ann.get("/v1/queue").status_code == 200
    return waiting


def test_requests_that_wait_are_answered_as_things_stand_when_the_broker_stops(drained):
    task = submit(drained)
    with drained.client("root") as root:
        assert root.put("/v1/devices/q/shares", json={"shares": 1}).status_code == 200
    with drained.client("ann") as ann:
        first, second = (ann.post("/v1/sessions", json={"device": "q"}).json() for _ in range(2))
    session = next(view["id"] for view in (first, second) if view["state"] == "waiting")
    paths = (f"/v1/tasks/{task}/result", f"/v1/tasks/{task}", f"/v1/sessions/{session}")
    waiting = [wait_on(drained, path) for path in paths]
    assert drained.stop() == 0
    states = []
    for one in waiting:
        with one:
            status, body = answer(one)
            states.append((status, json.loads(body)["state"]))
    assert states == [(200, "queued"), (200, "queued"), (200, "waiting")]
    drained.start()


def test_a_client_that_waits_for_a_result_does_not_notice_a_restart(drained):
    task, results = submit(drained), []

    async def wait():
        async with BrokerClient(f"http://127.0.0.1:{drained.port}", drained.tokens["ann"], retry_s=60.0) as broker:
            results.append(await broker.result(task))

    client = threading.Thread(target=asyncio.run, args=(wait(),))
    client.start()
    until(lambda: drained.connections() > 2)  # two sockets listen
    assert drained.stop() == 0
    drained.start()
    with drained.client("root") as root:
        assert root.post("/v1/devices/q/resume").status_code == 200
    client.join(60)
    assert results == [{"echo": 1}]


def test_a_request_that_cannot_be_finished_in_time_is_answered_with_503(tmp_path):
    """The process that reads its payload does not go on; the broker ends, and leaves no such process behind."""
    with serve(tmp_path, 'devices = [{ kind = "annealing", name = "q" }]\n') as broker:
        until(lambda: broker.children("qloom.broker.api.reading"))  # it may not have begun its program yet
        (reader,) = broker.children("qloom.broker.api.reading")
        os.kill(reader, signal.SIGSTOP)
        answers = []
        body = {"kind": "delay", "seconds": 0, "body": "x" * 20_000}
        client = threading.Thread(target=lambda: answers.append(broker.post(body)))
        client.start()
        until(lambda: _requests(broker) == 1)
        os.kill(broker.pid, signal.SIGTERM)
        client.join(60)
        assert answers[0].status_code == 503, answers[0].text
        assert "send it again" in answers[0].json()["hint"]
        until(lambda: not Path(f"/proc/{reader}").exists())


def _requests(broker) -> int:
    """Connections of clients: sockets that are neither listening nor a pipe to a child."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return sum(line.endswith(broker.path) and line.split()[5] == "03" for line in lines)


def test_a_broker_that_cannot_stop_kills_its_children_and_exits_saying_what_it_waited_for(tmp_path):
    service = Attacked(tmp_path, module="tests.security.stubborn")
    service.start()
    child = int((tmp_path / "child.pid").read_text())
    began_s = time.monotonic()
    assert service.stop() == 1
    assert time.monotonic() - began_s < 20
    assert "did not stop within 2 s" in service.log
    assert "StubbornDevice.close" in service.log
    until(lambda: not Path(f"/proc/{child}").exists() or _is_zombie(child))
    service.start()  # its lock is gone with it
    service.kill()


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
