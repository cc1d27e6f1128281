"""Large requests are read beside the event loop: the broker serves everybody else meanwhile.

Nothing here depends on how fast the machine is. The process that reads is stopped, and whatever is answered meanwhile
was answered without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
import time

import pytest

from qloom.broker.api.pool import ChildPool
from tests.security.served import cpu_s, serve

LARGE = {"kind": "qubo", "body": {"linear": [[i, 1.0] for i in range(3000)]}, "device": "anneal", "shots": 1}
HEAD = 'OPENQASM 3.0;\ninclude "stdgates.inc";\nqubit[2] q;\nbit[2] c;\n'
CIRCUIT = HEAD + "x q[0];\n" * 450_000 + "c = measure q;"
CONFIG = """
limits.check_processes = 1
promise = { longest_s = 1.0, promised_wait_s = 2.0 }
[[devices]]
kind = "annealing"
name = "anneal"
set_up_s = 0
per_shot_s = 0
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("freezing"), CONFIG) as served:
        yield served


@contextlib.contextmanager
def stopped(pid):
    """A process that reads nothing for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class Post(threading.Thread):
    """A request that is not waited for."""

    def __init__(self, broker, body) -> None:
        super().__init__(daemon=True)
        self.broker, self.body, self.answer = broker, body, None
        self.start()

    def run(self) -> None:
        with self.broker.client() as http:
            self.answer = http.post("/v1/tasks", json=self.body)

    def wait(self):
        self.join(120)
        return self.answer


def reader(broker) -> int:
    """The one process that reads; a broker starts it before it serves, and anew when it died."""
    while not (found := broker.children("qloom.broker.api.reading")):
        time.sleep(0.02)
    return found[0]


def test_others_are_served_while_a_large_payload_is_read(broker):
    assert broker.post(LARGE).status_code == 201  # the process is warm
    with stopped(reader(broker)):
        large = Post(broker, LARGE)
        session = broker.post({"device": "anneal"}, "/v1/sessions?wait=60").json()
        assert session["state"] == "open"
        for _ in range(20):
            assert broker.http.get("/healthz").status_code == 200
            task = {"kind": "delay", "body": None, "seconds": 0.0, "session": session["id"]}
            assert broker.post(task, "/v1/tasks?wait=60").json()["state"] == "done"
        assert large.answer is None, "nobody can have read it"
    assert large.wait().status_code == 201
    broker.http.delete(f"/v1/sessions/{session['id']}")


def test_the_broker_itself_reads_nothing_large(broker):
    """Neither what is submitted nor what is answered: with a process beside it, it has less to do than that one."""
    body = {**LARGE["body"], "quadratic": [[i % 3000, (i + 1 + i // 3000) % 3000, 0.5] for i in range(60_000)]}
    content = json.dumps({**LARGE, "body": body}).encode()
    broker.http.post("/v1/devices/anneal/drain")
    pid = reader(broker)
    before = cpu_s(broker.pid), cpu_s(pid)
    made = [broker.post(content).json()["id"] for _ in range(5)]
    used = cpu_s(broker.pid) - before[0], cpu_s(pid) - before[1]
    for task in made:
        broker.http.delete(f"/v1/tasks/{task}")
    broker.http.post("/v1/devices/anneal/resume")
    assert used[0] < used[1] / 2, used


def test_a_reader_that_died_is_replaced_and_nothing_was_accepted(broker):
    pid = reader(broker)
    with stopped(pid):
        large = Post(broker, LARGE)
        assert broker.http.get("/healthz").status_code == 200
        os.kill(pid, signal.SIGKILL)
    assert large.wait().status_code in (201, 503)  # it may have come after the death, and found the next process
    assert broker.post(LARGE).status_code == 201
    assert reader(broker) != pid


def test_a_payload_that_takes_too_long_to_read_is_refused(tmp_path):
    config = 'limits.check_cpu_s = 0.01\n[[devices]]\nkind = "qaoa"\nname = "gates"\n'
    with serve(tmp_path, config) as broker:
        answer = broker.post({"kind": "openqasm3", "body": CIRCUIT, "device": "gates"})
        assert answer.status_code == 422
        assert "limits.check_cpu_s" in answer.json()["message"]
        small = {"kind": "openqasm3", "body": CIRCUIT.replace("x q[0];\n", ""), "device": "gates", "seconds": 0.0}
        assert broker.post(small).status_code == 201


def test_forms_are_refused_alike_however_large_they_are(broker):
    for padding in ("", "x" * 50_000):
        wrong = broker.post({**LARGE, "body": padding, "shots": 0})
        assert (wrong.status_code, wrong.json()["message"]) == (
            422,
            "body.shots: Input should be greater than or equal to 1",
        )
        assert broker.post(b'{"kind": "' + padding.encode()).status_code == 422
        typed = broker.http.post("/v1/tasks", content=json.dumps({**LARGE, "body": padding}).encode())
        assert typed.status_code == 422
        assert "Content-Type" in typed.json()["message"]
        key = {**LARGE, "options": {"vartype": padding}, "key": f"key{len(padding)}"}
        first, again = broker.post(key).json(), broker.post(key).json()
        assert first["id"] == again["id"]
        assert broker.post({**key, "shots": 2}).status_code == 409


def test_options_that_would_keep_the_broker_busy_are_refused(broker):
    """They are read on the event loop when a task is queued, stored and run; a body never is."""
    for options in ({f"key{number}": 1 for number in range(10_000)}, {"note": "x" * 70_000}, {"note": [[]] * 30_000}):
        refused = broker.post({**LARGE, "body": 1, "options": options})
        assert refused.status_code == 422
        assert "body.options: Value error, may have 65536 bytes at most" in refused.json()["message"]


class WaitingChild:
    """In place of the process of a pool: answers when the test lets it."""

    pid = 1

    def __init__(self) -> None:
        self.done: list[str] = []
        self.go = asyncio.Semaphore(0)

    async def call(self, method, params, hangs_s, body):
        await self.go.acquire()
        self.done.append(params["key"])

    async def close(self):
        pass


def test_users_take_turns(monkeypatch):
    async def main():
        child = WaitingChild()
        monkeypatch.setattr("qloom.broker.api.pool.Child", lambda *arguments, **options: child)
        pool = ChildPool("qloom.broker.api.reading", processes=1, memory_mib=1024, cpu_s=30.0)
        work = [asyncio.ensure_future(pool.call("ann", "read", {"key": f"ann{n}"}, b"")) for n in range(4)]
        await asyncio.sleep(0)
        work.append(asyncio.ensure_future(pool.call("bob", "read", {"key": "bob0"}, b"")))
        await asyncio.sleep(0)
        work[2].cancel()  # whoever has gone takes no turn
        for _ in range(4):
            child.go.release()
        await asyncio.gather(*work, return_exceptions=True)
        assert child.done == ["ann0", "ann1", "bob0", "ann3"]
        await pool.close()

    asyncio.run(main())


def test_only_tasks_may_be_large(broker):
    """All other forms are parsed on the event loop."""
    large = {"device": "anneal", "job": "x" * 70_000}
    assert broker.post(large, "/v1/sessions").status_code == 413
    assert broker.post(large, "/v1/tasks").status_code == 422
