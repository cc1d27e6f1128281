"""The service as a process: killed in the middle of everything, and started again."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time

import dimod
import pytest

from qloom.broker.auth.tokens import TokenFile
from qloom.broker.client.client import BrokerClient
from qloom.broker.client.sync import SyncBrokerClient
from qloom.broker.problems import NoBroker, NotFound, StoreFull, Unauthenticated
from qloom.broker.store.schema import integrity
from qloom.errors import InputError, QuantumFailed
from tests.broker.processes import ROOT, Service


@pytest.fixture
def service(tmp_path):
    one = Service(tmp_path)
    one.start()
    yield one
    if one.process.poll() is None:
        assert one.stop() == 0
    assert integrity(one.store) == []


def form(body, seconds=0.0):
    return {"kind": "test", "body": body, "seconds": seconds}


def runs(service: Service) -> collections.Counter:
    return collections.Counter(json.loads(path.read_text())["body"] for path in service.tasks.iterdir())


def test_tasks_and_a_tidy_end(service):
    with SyncBrokerClient(service.address) as broker:
        assert broker.run(form("a")) == {"echo": "a"}
        task = broker.submit(form("b", seconds=0.2))
        assert broker.wait(task["id"])["state"] == "done"
        assert broker.devices()[0]["name"] == "q"
        assert broker.drain("q")["up"] is False  # whoever runs it may
        waiting = broker.submit(form("c"))
        assert broker.status(waiting["id"])["position"] == 0
        assert broker.queue()["mine"][0]["id"] == waiting["id"]
        assert broker.cancel(waiting["id"])["state"] == "cancelled"
        with pytest.raises(QuantumFailed, match="cancelled"):
            broker.result(waiting["id"])
        with pytest.raises(NotFound):
            broker.status("nothing")
        assert broker.drain("q", False)["up"] is True
        session = broker.open_session("q")
        assert broker.run(form("d"), session=session["id"]) == {"echo": "d"}
        broker.close_session(session["id"])
        assert broker.reconcile() == []
    assert (service.store.stat().st_mode & 0o777) == 0o600
    assert service.stop() == 0


def test_no_broker_is_one_line(tmp_path):
    with SyncBrokerClient(f"unix:{tmp_path}/none.sock", retry_s=0.1) as broker, pytest.raises(NoBroker) as told:
        broker.devices()
    assert "no broker answers" in told.value.message


def test_two_brokers_on_one_store_are_refused(service):
    command = [sys.executable, "-m", "tests.broker.service", str(service.directory / "broker.toml")]
    second = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert second.returncode != 0
    assert "another broker uses the store" in second.stderr


def test_a_crash_after_handing_over_does_not_start_it_again(service):
    with SyncBrokerClient(service.address) as broker:
        for number in range(3):
            service.dies.touch()
            task = broker.submit(form(f"t{number}"), key=f"k{number}")
            service.process.wait(20)
            service.start()
            assert broker.result(task["id"]) == {"echo": f"t{number}"}
    assert runs(service) == {"t0": 1, "t1": 1, "t2": 1}


@pytest.mark.slow
def test_killed_five_times_in_the_middle_of_a_thousand_tasks(service):
    clients, each = 8, 125
    got: collections.Counter = collections.Counter()

    async def client(number):
        async with BrokerClient(service.address) as broker:
            waiting = []
            for index in range(each):
                body = f"{number}.{index}"
                waiting.append((body, (await broker.submit(form(body, 0.002)))["id"]))
                if len(waiting) == 10 or index == each - 1:  # some are always under way
                    for expected, id in waiting:
                        assert (await broker.result(id)) == {"echo": expected}
                        got[expected] += 1
                    waiting = []

    async def killer():
        dice = random.Random(5)
        for kill in range(5):
            while len(got) < (kill + 1) * 1000 // 7:
                await asyncio.sleep(0.01)
            await asyncio.sleep(dice.random() * 0.05)
            await asyncio.to_thread(service.kill)
            await asyncio.to_thread(service.start)

    async def main():
        async with asyncio.TaskGroup() as group:  # if one fails, nobody waits for ever
            for work in (killer(), *(client(number) for number in range(clients))):
                group.create_task(work)

    began_s = time.monotonic()
    asyncio.run(main())
    print(f"{time.monotonic() - began_s:.1f} s")
    assert len(got) == clients * each
    assert set(got.values()) == {1}
    assert set(runs(service).values()) == {1}
    with SyncBrokerClient(service.address) as broker:
        assert broker.queue()["mine"] == []
        assert broker.reconcile() == []
    assert integrity(service.store) == []


def test_a_client_that_vanishes_leaves_nothing_behind(service):
    async def main():
        async with BrokerClient(service.address) as broker:
            task = (await broker.submit(form("x", 0.5)))["id"]
            waits = [asyncio.ensure_future(broker.wait(task)) for _ in range(20)]
            await asyncio.sleep(0.1)
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)
            assert await broker.result(task) == {"echo": "x"}
            _reader, writer = await asyncio.open_unix_connection(str(service.socket))
            writer.write(b"POST /v1/tasks HTTP/1.1\r\nHost: b\r\nContent-Length: 1000\r\n\r\n{")
            await writer.drain()
            writer.close()
            assert (await broker.queue())["mine"] == []

    asyncio.run(main())


def test_tokens_over_tcp(tmp_path):
    one = Service(tmp_path, listen=[f"127.0.0.1:{free_port()}"], projects={"physics": {}})
    tokens = TokenFile(tmp_path / "tokens.json")
    one.start()
    address = one.address
    try:
        with SyncBrokerClient(address, "qloom_wrong", retry_s=1) as stranger, pytest.raises(Unauthenticated):
            stranger.devices()
        token = tokens.add("ann", ["physics"])
        with SyncBrokerClient(address, token) as ann:
            assert ann.run(form("a")) == {"echo": "a"}
            tokens.revoke("ann")
            with pytest.raises(Unauthenticated):
                ann.devices()
    finally:
        one.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: another user id needs root")
def test_a_unix_socket_tells_who_is_there(open_path):
    """Another user sees nothing of ours, and may not drain."""
    one = Service(open_path)
    one.start()
    try:
        with SyncBrokerClient(one.address) as broker:
            task = broker.submit(form("mine"))["id"]
            broker.result(task)
        script = (
            "import sys, httpx\n"
            "with httpx.Client(transport=httpx.HTTPTransport(uds=sys.argv[1]), base_url='http://b') as client:\n"
            "    print(client.get('/v1/queue').status_code, client.post('/v1/devices/q/drain').status_code)\n"
            "    print(client.post('/v1/tasks', json={'kind': 'test', 'body': 1}).json()['project'])\n"
        )
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", script]
        done = subprocess.run([*command, str(one.socket)], capture_output=True, text=True, check=False, cwd="/")
        assert done.stdout.split() == ["200", "403", "default"], done.stderr
    finally:
        one.stop()


def test_a_dimod_model_goes_through_a_real_device(tmp_path):
    """The service as users start it: `qloom broker serve`, simulated annealing, QloomSampler."""
    from qloom.interop.dimod import QloomSampler

    one = Service(tmp_path, "tests.broker.plain", devices=[{"kind": "annealing", "name": "annealing"}])
    one.start()
    try:
        model = dimod.BinaryQuadraticModel({("a", 1): 1.0, "b": -1.0}, {(("a", 1), "b"): -2.0}, 0.5, "SPIN")
        with QloomSampler(address=one.address) as sampler:
            found = sampler.sample(model, num_reads=20)
            assert found.vartype is dimod.SPIN
            assert found.first.energy == pytest.approx(dimod.ExactSolver().sample(model).first.energy)
            assert set(found.variables) == set(model.variables)
            assert sampler.sample_qubo({(0, 0): -1.0}).first.sample == {0: 1}
        with SyncBrokerClient(one.address) as broker, pytest.raises(InputError):
            broker.run({"kind": "qubo", "body": {"linear": "x"}})
    finally:
        assert one.stop() == 0


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte, where the machine lets us have one."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("NOT TESTED: a really full disk needs the right to mount one")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_disk_that_is_really_full(tmp_path, small_disk):
    one = Service(tmp_path, store=str(small_disk / "broker.db"))
    one.start()
    try:
        with SyncBrokerClient(one.address, retry_s=1) as broker:
            broker.drain("q")
            bodies = [f"{number:03}" + "x" * 20_000 for number in range(100)]
            accepted = []

            def fill():
                for body in bodies:
                    accepted.append((body, broker.submit(form(body))["id"]))

            with pytest.raises(StoreFull, match="cannot store this"):
                fill()
            assert len(accepted) > 5
            one.kill()
            for end in ("", "-wal"):  # to a larger disk
                shutil.copy(small_disk / f"broker.db{end}", tmp_path / f"moved.db{end}")
            config = tmp_path / "broker.toml"
            config.write_text(config.read_text().replace(str(small_disk / "broker.db"), str(tmp_path / "moved.db")))
            one.start()
            broker.drain("q", False)
            for body, id in accepted:
                assert broker.result(id) == {"echo": body}
        assert integrity(tmp_path / "moved.db") == []
    finally:
        one.stop()
