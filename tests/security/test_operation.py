"""What an administrator meets: a wrong clock, a lost or damaged store, SIGHUP, and what /healthz says of it all."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from qloom.broker.client.sync import SyncBrokerClient
from qloom.broker.clock import ServiceClock
from qloom.broker.store.schema import TABLES
from qloom.model import QpuHold
from tests.broker.fakes import ANN, FakeDevice, Vendor, broker_on
from tests.broker.processes import ROOT, Service
from tests.broker.web import service as web_service
from tests.security.site import site

TEN_YEARS_S = 10 * 365.25 * 86400


def form(body, seconds=0.0, **more):
    return {"kind": "test", "body": body, "seconds": seconds, **more}


def in_loop(test):
    """A test that is a coroutine."""

    def run(tmp_path):
        asyncio.run(test(tmp_path))

    run.__name__ = test.__name__
    return run


def admin_config(service) -> str:
    """A config for commands that only look at the store: its device is one that they know."""
    path = service.directory / "admin.toml"
    path.write_text(f'store = "{service.store}"\n')
    return str(path)


@pytest.fixture
def service(tmp_path):
    one = Service(tmp_path, module="tests.security.skewed")
    one.start()
    yield one
    if one.process.poll() is None:
        assert one.stop() == 0


def qloom(*words, **more):
    command = [sys.executable, "-m", "qloom", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120, **more)


def asking(service, path="/healthz") -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(service.socket)), base_url="http://b") as client:
        return client.get(path)


def files_of_the_store(service) -> list[Path]:
    return [path for end in ("", "-wal", "-shm") if (path := Path(f"{service.store}{end}")).exists()]


# The clock


def test_a_start_with_the_clock_ten_years_ahead_deletes_nothing(service, monkeypatch):
    with SyncBrokerClient(service.address) as broker:
        task = broker.submit(form("kept"))["id"]
        assert broker.result(task) == {"echo": "kept"}
        broker.drain("q")
        waiting = broker.submit(form("waits", max_wait_s=3600.0))["id"]
        assert service.stop() == 0
        monkeypatch.setenv("QLOOM_TEST_SKEW_S", str(TEN_YEARS_S))
        service.start()
        assert broker.result(task) == {"echo": "kept"}
        assert broker.status(waiting)["state"] == "queued"
        assert "the clock has jumped" in (service.directory / "log").read_text()
        assert service.stop() == 0
        monkeypatch.delenv("QLOOM_TEST_SKEW_S")
        service.start()
        assert broker.result(task) == {"echo": "kept"}
        broker.drain("q", False)
        assert broker.result(waiting) == {"echo": "waits"}


def test_results_are_still_forgotten_after_time_that_the_broker_has_seen(tmp_path):
    limits = {"keep_results_s": 0.2, "requests_per_s": 1e6, "burst": 1e6}
    service = Service(tmp_path, limits=limits)
    service.start()
    try:
        with SyncBrokerClient(service.address) as broker:
            task = broker.submit(form("forgotten"))["id"]
            assert broker.result(task) == {"echo": "forgotten"}
            ended_us = broker.status(task)["ended_us"]
            while broker.status(broker.submit(form("later"))["id"])["submitted_us"] < ended_us + 300_000:
                time.sleep(0.05)  # time passes, however slow the machine is
            assert service.stop() == 0
            service.start()
            assert asking(service, "/healthz").status_code == 200
            with sqlite3.connect(service.store) as database:
                assert database.execute("SELECT count(*) FROM tasks WHERE id = ?", (task,)).fetchone() == (0,)
    finally:
        if service.process.poll() is None:
            service.stop()


# The store


def test_a_store_that_is_gone_is_not_replaced_by_an_empty_one(service):
    config = admin_config(service)
    with SyncBrokerClient(service.address) as broker:
        assert broker.run(form("a")) == {"echo": "a"}
    assert service.stop() == 0
    away = service.directory / "away"
    away.mkdir()
    for path in files_of_the_store(service):
        path.rename(away / path.name)
    for empty in (False, True):
        if empty:
            service.store.touch()
        refused = qloom("broker", "serve", "--config", config)
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert f"the store {service.store} is gone" in refused.stderr
        assert "restore it from a backup" in refused.stderr
        assert "qloom broker init" in refused.stderr
        checked = qloom("broker", "check", "--config", config)
        assert checked.returncode != 0
        assert "it is gone" in checked.stderr
    service.store.unlink()
    made = qloom("broker", "init", "--config", config)
    assert made.returncode == 0, made.stderr
    assert qloom("broker", "init", "--config", config).returncode == 2  # there is one now
    service.start()
    with SyncBrokerClient(service.address) as broker:
        assert broker.run(form("b")) == {"echo": "b"}


def test_a_first_start_needs_no_flag_even_if_tokens_were_made_before(tmp_path):
    service = Service(tmp_path)
    config = admin_config(service)
    made = qloom("broker", "token", "ann", "--project", "default", "--config", config)
    assert made.returncode == 0, made.stderr
    service.start()
    assert service.stop() == 0
    service.start()
    assert service.stop() == 0


def test_a_store_that_is_removed_under_a_running_broker_accepts_nothing(service):
    with SyncBrokerClient(service.address) as broker:
        assert broker.run(form("a")) == {"echo": "a"}
    for path in files_of_the_store(service):
        path.unlink()
    health = asking(service)
    assert health.status_code == 503, health.text
    assert health.json()["status"] == "failing"
    assert health.json()["reasons"] == ["the store cannot be written"]
    assert str(service.directory) not in health.text
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(service.socket)), base_url="http://b") as client:
        assert client.post("/v1/tasks", json=form("b")).status_code == 507
    service.kill()


@pytest.mark.parametrize("part", ["result", "user", "seconds"])
def test_changed_bytes_of_a_store_are_found(service, part):
    config = admin_config(service)
    with SyncBrokerClient(service.address) as broker:
        body = "A" * 64
        task = broker.submit(form(body, name="N" * 64))["id"]
        assert broker.result(task) == {"echo": body}
    assert service.stop() == 0
    assert "is sound" in qloom("broker", "check", "--config", config).stdout
    content = service.store.read_bytes()
    if part == "seconds":  # one bit of a number, which no index knows
        with sqlite3.connect(service.store) as database:
            (ended_us,) = database.execute("SELECT ended_us FROM tasks WHERE id = ?", (task,)).fetchone()
            (began_us,) = database.execute("SELECT began_us FROM handovers").fetchone()
        assert ended_us != began_us
        wanted = began_us.to_bytes(8, "big").lstrip(b"\0")
        place = content.rindex(wanted) + len(wanted) - 1
        changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    else:
        letter = b"A" if part == "result" else b"N"
        place = content.index(letter * 64)
        changed = content.replace(letter * 64, bytes([letter[0] + 1]) * 64)
        assert place > 0
    assert changed != content
    service.store.write_bytes(changed)
    checked = qloom("broker", "check", "--config", config)
    assert checked.returncode != 0
    assert "not as they were written" in checked.stderr
    assert json.loads(qloom("broker", "check", "--config", config, "--json").stdout)["problems"]


def test_a_store_of_an_older_broker_is_taken_over(tmp_path):
    service = Service(tmp_path)
    with sqlite3.connect(service.store) as database:
        database.executescript(TABLES + "PRAGMA user_version = 1;")
        database.execute("INSERT INTO projects VALUES ('physics', 12.5)")
        database.execute(
            "INSERT INTO tasks (id, user, project, device, job, name, digest, expected_s, priority, state, "
            "submitted_us, ended_us, billed_s) "
            "VALUES ('old', 'root', 'default', 'q', 'j', 'n', 'd', 1, 0, 'done', 5, 6, 1.5)"
        )
        database.execute("INSERT INTO results VALUES ('old', '[1]')")
        database.execute(f"INSERT INTO meta VALUES ('clock_us', '{time.time_ns() // 1000}')")
        database.execute("UPDATE tasks SET ended_us = ?", (time.time_ns() // 1000,))
    config = admin_config(service)
    assert qloom("broker", "check", "--config", config).returncode == 0
    service.start()
    with SyncBrokerClient(service.address) as broker:
        assert broker.result("old") == [1]
        assert broker.run(form("new")) == {"echo": "new"}
    assert service.stop() == 0
    assert qloom("broker", "check", "--config", config).returncode == 0
    with sqlite3.connect(service.store) as database:
        assert database.execute("PRAGMA user_version").fetchone()[0] > 1
        assert database.execute("SELECT used_s FROM projects WHERE name = 'physics'").fetchone() == (12.5,)


# SIGHUP


def log_says(service, text):
    """Wait for a line of the log; bounded by the time limit of the test."""
    while text not in (service.directory / "log").read_text():
        assert service.process.poll() is None, "the broker ended"
        time.sleep(0.02)


def test_sighup_reads_the_config_again_and_ends_nothing(service):
    config = service.directory / "broker.toml"
    whole = config.read_text()
    with SyncBrokerClient(service.address) as broker:
        broker.drain("q")
        waiting = broker.submit(form("waits"))["id"]
        config.write_text(whole + 'projects = {other = {members = ["*"]}}\npoll_s = 1.0\n')
        service.process.send_signal(signal.SIGHUP)
        log_says(service, "these changes need a restart: poll_s")
        assert broker.submit(form("new"))["project"] == "other"
        config.write_text("colour = 1")
        service.process.send_signal(signal.SIGHUP)
        log_says(service, "nothing has changed: ")
        config.write_text(whole)
        service.process.send_signal(signal.SIGHUP)
        while broker.submit(form("back"))["project"] != "default":
            time.sleep(0.02)
        broker.drain("q", False)
        assert broker.result(waiting) == {"echo": "waits"}


# Health


async def until(condition):
    """Bounded by the time limit of the test."""
    while not await condition():
        await asyncio.sleep(0.02)


@in_loop
async def test_health_tells_which_device_and_that_the_hook_fails(tmp_path):
    devices = [{"kind": "annealing", "name": "one"}, {"kind": "annealing", "name": "two"}]
    hook = ["/bin/sh", "-c", f"test ! -e {tmp_path}/broken"]
    async with site(tmp_path, devices=devices, hook=hook) as (broker, client), client("ann") as anybody:
        anybody.headers.pop("Authorization")

        async def told():
            answer = await anybody.get("/healthz")
            return answer.status_code, answer.json()["status"], answer.json()["reasons"]

        assert await told() == (200, "ok", [])
        (tmp_path / "broken").touch()
        async with client("boss") as root:
            await root.post("/v1/devices/one/drain")
        await until(lambda: _is(told, (200, "degraded", ["the hook fails for QPU one"])))
        assert 'qloom_hook_failing{device="one"} 1.0' in (await anybody.get("/metrics")).text
        (tmp_path / "broken").unlink()
        await until(lambda: _is(told, (200, "ok", [])))  # a device that was drained on purpose is no fault

        async def offline():
            return "offline"

        broker._devices["two"].state = offline
        await until(lambda: _is(told, (200, "degraded", ["QPU two is offline"])))


async def _is(told, expected):
    return await told() == expected


@in_loop
async def test_health_tells_that_the_disk_is_full_and_that_it_is_not_any_more(tmp_path):
    async with web_service(tmp_path) as (broker, client, _), client("ann") as ann:
        assert (await ann.get("/healthz")).json()["status"] == "ok"
        pages = broker.database.row("PRAGMA page_count")[0]
        broker.database.rows(f"PRAGMA max_page_count = {pages + 2}")
        assert (await ann.post("/v1/tasks", json=form("x" * 100_000))).status_code == 507
        full = await ann.get("/healthz")
        assert (full.status_code, full.json()["reasons"]) == (503, ["the store cannot be written"])
        assert "qloom_store_writable 0.0" in (await ann.get("/metrics")).text
        broker.database.rows("PRAGMA max_page_count = 1000000")
        assert (await ann.post("/v1/tasks", json=form("x" * 100_000))).status_code == 201
        assert (await ann.get("/healthz")).status_code == 200


# Memory


@in_loop
async def test_polling_a_session_that_waits_leaves_nothing_behind(tmp_path):
    clock = ServiceClock()
    broker = broker_on([FakeDevice(Vendor(clock))], tmp_path / "s.db", clock)
    await broker.start()
    try:
        await broker.sessions.open(ANN, "q", QpuHold.WHOLE)
        waiting = await broker.sessions.open(ANN, "q", QpuHold.WHOLE)
        for _ in range(50):
            assert (await broker.sessions.wait_open(ANN, waiting["id"], 0.001))["state"] == "waiting"
        assert broker.registry.sessions[waiting["id"]].changed == []
    finally:
        await broker.close()
