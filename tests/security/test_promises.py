"""A bound on waiting is promised only where it can be kept, and no task is lost because its device was away."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from qloom.broker.config import config_from
from qloom.broker.queue.lines import DeviceSpec
from qloom.devices.factory import make_device
from qloom.errors import InputError
from tests.broker.fakes import ANN, FakeDevice, Vendor, broker_on, crash, order, run_virtual
from tests.security.site import ROOT as FOLDER
from tests.security.site import ended, site

CIRCUIT = 'OPENQASM 3.0;\ninclude "stdgates.inc";\nqubit[1] q;\nbit[1] c;\nh q[0];\nc[0] = measure q[0];\n'


def delay(seconds=0.0, **more):
    return {"kind": "delay", "body": None, "seconds": seconds, **more}


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    """A machine behind the stand-in of QRMI, which executes a task for an hour if nobody stops it."""
    monkeypatch.setenv("QRMI_STANDIN", str(tmp_path / "vendor"))
    monkeypatch.setenv("QRMI_STANDIN_S", "3600")
    monkeypatch.syspath_prepend(str(FOLDER / "tests" / "unit"))
    (tmp_path / "vendor" / "machine").mkdir(parents=True)
    return {
        "kind": "qrmi", "name": "vendor", "resource": "machine", "type": "qiskit-runtime-service",
        "module": "qrmi_standin", "poll_s": 0.05, "tokens": str(tmp_path / "tokens.jsonl"), "in_process": True,
        "set_up_s": 0.0, "per_shot_s": 0.001,
    }  # fmt: skip


# What is promised


def test_a_vendor_with_a_queue_promises_nothing_and_its_limit_holds_all_the_same(tmp_path, vendor):
    async def main():
        promise = {"longest_s": 0.2, "promised_wait_s": 600.0}
        devices = [vendor, {"kind": "annealing", "name": "q"}]
        async with site(tmp_path, devices=devices, promise=promise) as (_, client), client("ann") as ann:
            seen = {one["name"]: one for one in (await ann.get("/v1/devices")).json()}
            assert seen["q"]["promised_wait_s"] is not None
            assert seen["vendor"]["promised_wait_s"] is None
            assert seen["vendor"]["vendor_queue"] is True
            task = await ann.post("/v1/tasks", json={"kind": "openqasm3", "body": CIRCUIT, "device": "vendor"})
            view = await ended(ann, task.json()["id"])
            assert (view["state"], view["reason"]) == ("failed", "it ran longer than 0.2 s")

    asyncio.run(main())


@pytest.mark.parametrize("stalled_s", [0.35, 1.0], ids=["until just after the limit", "for longer"])
def test_no_task_is_ended_for_time_in_which_the_broker_itself_did_not_run(tmp_path, stalled_s):
    """The machine was busy, or the process was stopped: the device was done long before the limit."""

    async def main():
        promise = {"longest_s": 0.1, "limit_s": 0.3}
        options = {"devices": [{"kind": "annealing", "name": "q"}], "promise": promise}
        async with site(tmp_path, **options) as (_, client), client("ann") as ann:
            task = (await ann.post("/v1/tasks", json=delay(0.05))).json()["id"]
            assert (await ann.get(f"/v1/tasks/{task}?wait=30")).json()["state"] in ("executing", "done")
            time.sleep(stalled_s)  # nothing runs meanwhile
            view = await ended(ann, task)
            assert (view["state"], view["reason"]) == ("done", "")

    asyncio.run(main())


def test_a_site_can_say_that_a_machine_is_its_own(vendor):
    def promised(**values):
        config = config_from({"promises": {"vendor": {"longest_s": 10.0, "promised_wait_s": 100.0}}}, "config")
        return config.spec(make_device({**vendor, **values}).description).promised_wait_s()

    assert promised(vendor_queue=False) == 100.0
    with pytest.raises(InputError, match="cannot promise a wait: its vendor queues tasks, or does not stop them"):
        promised()
    with pytest.raises(InputError, match="cannot promise"):
        promised(vendor_queue=False, can_stop=False)


# Time that does not count


def test_a_task_that_was_handed_over_into_a_calibration_is_not_ended_for_it(tmp_path):
    """The broker has not noticed yet that the device calibrates, and the window is longer than the limit."""

    async def main():
        begins_s = time.time() + 1.0
        window = {"every_s": 86000.0, "for_s": 2.0, "first_s": begins_s % 86000.0}
        device = {"kind": "annealing", "name": "q", "calibration": [window]}
        promise = {"longest_s": 0.2, "limit_s": 0.5}
        options = {"devices": [device], "promise": promise, "poll_s": 3600.0}
        async with site(tmp_path, **options) as (broker, client), client("ann") as ann:
            while await broker._devices["q"].state() != "calibration":
                await asyncio.sleep(0.01)
            task = (await ann.post("/v1/tasks", json=delay(0.01))).json()["id"]
            view = await ended(ann, task)
            assert (view["state"], view["reason"]) == ("done", "")
            assert view["executing_us"] >= (begins_s + 2.0) * 1e6, "it did not execute in the window"

    asyncio.run(main())


def test_a_task_that_runs_while_its_device_is_away_is_given_that_time(tmp_path):
    async def main(clock):
        class Paused(FakeDevice):
            async def wait(self, id):
                status = await super().wait(id)
                return type(status)(status.state)  # a vendor that does not say what it bills

        vendor = Vendor(clock)
        spec = DeviceSpec("q", longest_s=10.0, limit_s=12.0)

        async def start(state="idle"):
            device = Paused(vendor, state=state)
            broker = broker_on([device], tmp_path / "s.db", clock, [spec])
            await broker.start()
            return broker

        broker = await start()
        task = (await broker.tasks.submit(ANN, order(seconds=10.0)))["id"]
        await clock.sleep(4.0)
        for id in vendor.ends_us:
            vendor.ends_us[id] += 100_000_000  # it stands still for so long
        broker.monitor.states["q"] = "calibration"
        broker.monitor._apply("q")
        await clock.sleep(50.0)
        await crash(broker)
        broker = await start("calibration")
        await clock.sleep(49.0)
        assert broker.tasks.status(ANN, task)["state"] == "executing"
        broker.monitor.states["q"] = "idle"
        broker.monitor._apply("q")
        view = await broker.tasks.wait(ANN, task)
        assert view["state"] == "done"
        assert view["billed_s"] == pytest.approx(11.0, abs=1.0), "what it stood still is not charged"
        await broker.close()

    run_virtual(main)


# Other devices


def two(**values):
    return [{"kind": "annealing", "name": "a", **values}, {"kind": "annealing", "name": "b"}]


@pytest.mark.parametrize("devices", [["a", "b"], ["*"]])
def test_a_task_that_names_several_devices_runs_on_one_that_is_there(tmp_path, devices):
    async def main():
        async with site(tmp_path, devices=two()) as (_, client), client("ann") as ann, client("boss") as boss:
            await boss.post("/v1/devices/b/drain")
            running = (await ann.post("/v1/tasks", json=delay(3600.0, device="a"))).json()["id"]
            only_a = (await ann.post("/v1/tasks", json=delay(device="a"))).json()["id"]
            task = (await ann.post("/v1/tasks", json=delay(devices=devices))).json()
            assert task["device"] == "a", "b is drained"
            await boss.post("/v1/devices/a/drain")
            assert (await ann.get(f"/v1/tasks/{task['id']}")).json()["device"] == "a", "neither is there"
            await boss.post("/v1/devices/b/resume")
            view = await ended(ann, task["id"])
            assert (view["state"], view["device"]) == ("done", "b")
            assert (await ann.get(f"/v1/tasks/{only_a}")).json()["state"] == "queued", "it named one"
            await ann.delete(f"/v1/tasks/{running}")

    asyncio.run(main())


def test_a_device_that_fails_hands_a_task_to_the_next(tmp_path):
    async def main():
        failing = two(faults={"seed": 1, "rates": {"fail": 1.0}})
        async with site(tmp_path, devices=failing) as (_, client), client("ann") as ann:
            alone = (await ann.post("/v1/tasks", json=delay(0.01, device="a"))).json()["id"]
            assert (await ended(ann, alone))["state"] == "failed"
            task = (await ann.post("/v1/tasks", json=delay(0.01, devices=["a", "b"]))).json()["id"]
            view = await ended(ann, task)
            assert (view["state"], view["device"], view["attempts"]) == ("done", "b", 2)

    asyncio.run(main())


def test_what_a_task_may_run_on_is_checked(tmp_path):
    async def main():
        devices = [*two(), {"kind": "pulser", "name": "atoms"}]
        async with site(tmp_path, devices=devices) as (_, client), client("ann") as ann:
            problem = {"kind": "qubo", "body": {"linear": [["x", -1.0]], "quadratic": [], "offset": 0.0}}
            unknown = await ann.post("/v1/tasks", json={**problem, "devices": ["a", "nowhere"]})
            assert "no QPU is called 'nowhere'" in unknown.json()["message"]
            unfit = await ann.post("/v1/tasks", json={**problem, "devices": ["a", "atoms"]})
            assert unfit.status_code == 422, "it was named, and cannot take this"
            both = await ann.post("/v1/tasks", json={**problem, "device": "a", "devices": ["b"]})
            assert both.status_code == 400
            anywhere = await ann.post("/v1/tasks", json={**problem, "devices": ["*"]})
            assert anywhere.json()["device"] in ("a", "b")
            session = (await ann.post("/v1/sessions", json={"device": "a"})).json()["id"]
            inside = await ann.post("/v1/tasks", json={**problem, "devices": ["b"], "session": session})
            assert inside.status_code == 409, "a session holds one device"

    asyncio.run(main())


def test_where_a_task_may_run_outlives_a_restart(tmp_path):
    async def main(clock):
        vendor = Vendor(clock)

        async def start(*states):
            devices = [FakeDevice(vendor, name, state=state) for name, state in zip("ab", states, strict=True)]
            broker = broker_on(devices, tmp_path / "s.db", clock)
            await broker.start()
            return broker

        broker = await start("offline", "offline")
        task = (await broker.tasks.submit(ANN, order(7, devices=("a", "b"), key="k")))["id"]
        assert broker.tasks.status(ANN, task)["device"] == "a"
        await crash(broker)
        broker = await start("offline", "idle")
        view = await broker.tasks.wait(ANN, task)
        assert (view["state"], view["device"]) == ("done", "b")
        assert (await broker.tasks.submit(ANN, order(7, devices=("a", "b"), key="k")))["id"] == task
        assert json.loads(broker.database.row("SELECT places FROM tasks WHERE id = ?", task)[0])[0]["device"] == "a"
        await broker.close()

    run_virtual(main)
