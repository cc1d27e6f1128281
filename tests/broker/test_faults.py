"""The broker in virtual time: what is left after crashes, faults and lost devices."""

from __future__ import annotations

import logging

import pytest

from qloom.broker.problems import NotFound, StoreFull
from qloom.broker.queue.lines import DeviceSpec
from qloom.broker.queue.policies import Project
from qloom.broker.store.database import Database
from qloom.broker.store.schema import integrity
from qloom.errors import Refused
from qloom.model import QpuHold
from tests.broker.fakes import ANN, ROOT, FakeDevice, Vendor, broker_on, crash, order, run_virtual
from tests.broker.scenario import scenario


def test_calibration_is_noticed(tmp_path):
    async def main(clock):
        device = FakeDevice(Vendor(clock), state="calibration")
        broker = broker_on([device], tmp_path / "s.db", clock, poll_s=5.0)
        await broker.start()
        task = await broker.tasks.submit(ANN, order(seconds=1.0))
        await clock.sleep(60.0)
        assert broker.tasks.status(ANN, task["id"])["state"] == "queued"
        device.now = "broken"
        await clock.sleep(10.0)
        assert broker.devices.view("q")["state"] == "offline"
        device.now = "idle"
        assert (await broker.tasks.wait(ANN, task["id"]))["state"] == "done"
        await broker.close()

    run_virtual(main)


def test_budgets_outlive_the_broker(tmp_path):
    async def main(clock):
        vendor = Vendor(clock)
        options = {"projects": [Project("physics", budget_s=10.0)]}
        broker = broker_on([FakeDevice(vendor)], tmp_path / "s.db", clock, **options)
        await broker.start()
        task = await broker.tasks.submit(ANN, order(seconds=7.0))
        await broker.tasks.wait(ANN, task["id"])
        await crash(broker)
        broker = broker_on([FakeDevice(vendor)], tmp_path / "s.db", clock, **options)
        await broker.start()
        with pytest.raises(Refused, match=r"3\.0 QPU-seconds left of 10"):
            await broker.tasks.submit(ANN, order(seconds=4.0))
        assert broker.core.ledger.usage.of("physics") == pytest.approx(7.0)
        await broker.close()

    run_virtual(main)


def test_shares_follow_the_promise_and_outlive_the_broker(tmp_path):
    async def main(clock):
        spec = DeviceSpec("q", shares=2, longest_s=10.0)
        options = {"specs": [spec], "promised_wait_s": {"q": 40.0}}
        broker = broker_on([FakeDevice(Vendor(clock))], tmp_path / "s.db", clock, **options)
        await broker.start()
        with pytest.raises(Refused, match="allows 4 shares"):
            await broker.devices.set_shares(ROOT, "q", 5)
        view = await broker.devices.set_shares(ROOT, "q", 4)
        assert (view["shares"], view["promised_wait_s"]) == (4, 40.0)
        task = await broker.tasks.submit(ANN, order(seconds=3.0))
        assert broker.registry.tasks[task["id"]].time_limit_s == 10.0
        await crash(broker)
        broker = broker_on([FakeDevice(Vendor(clock))], tmp_path / "s.db", clock, **options)
        await broker.start()
        assert broker.devices.view("q")["shares"] == 4
        await broker.close()

    run_virtual(main)


@pytest.mark.parametrize("moment_s", [0.5, 1.5, 3.0])
@pytest.mark.parametrize("cannot_tell", [False, True])
def test_a_crash_while_handing_over(tmp_path, moment_s, cannot_tell):
    """Before the vendor has it, after, and while it executes."""

    async def main(clock):
        vendor = Vendor(clock)
        device = FakeDevice(vendor, start_s=2.0)
        broker = broker_on([device], tmp_path / "s.db", clock)
        await broker.start()
        task = await broker.tasks.submit(ANN, order(5, seconds=4.0))
        await clock.sleep(moment_s)
        state = broker.tasks.status(ANN, task["id"])["state"]
        assert state == ("executing" if moment_s > 2 else "preparing")
        await crash(broker)
        broker = broker_on([FakeDevice(vendor, cannot_tell=cannot_tell)], tmp_path / "s.db", clock)
        await broker.start()
        view = await broker.tasks.wait(ANN, task["id"])
        if cannot_tell and state == "preparing":
            assert view["state"] == "failed"
            assert "cannot say whether it was given this task" in view["reason"]
            assert [row["problem"][:31] for row in await broker.devices.reconcile(ROOT) if row["task"]] == [
                "the device could not say whethe"
            ]
        else:
            assert (view["state"], view["attempts"]) == ("done", 1)
        assert vendor.runs.get(5, 0) <= 1
        await broker.close()

    run_virtual(main)


def test_a_device_that_forgot_everything_runs_it_again(tmp_path):
    async def main(clock):
        broker = broker_on([FakeDevice(Vendor(clock))], tmp_path / "s.db", clock)
        await broker.start()
        tasks = [await broker.tasks.submit(ANN, order(n, seconds=4.0)) for n in range(3)]
        await clock.sleep(1.0)
        await crash(broker)
        fresh = Vendor(clock)
        broker = broker_on([FakeDevice(fresh)], tmp_path / "s.db", clock)
        await broker.start()
        for task in tasks:
            assert (await broker.tasks.wait(ANN, task["id"]))["state"] == "done"
        assert fresh.runs == {0: 1, 1: 1, 2: 1}
        await broker.close()
        assert integrity(tmp_path / "s.db") == []

    run_virtual(main)


def test_a_cancellation_outlives_the_broker(tmp_path):
    async def main(clock):
        vendor = Vendor(clock)
        broker = broker_on([FakeDevice(vendor)], tmp_path / "s.db", clock)
        await broker.start()
        task = await broker.tasks.submit(ANN, order(seconds=1000.0))
        await clock.sleep(1.0)

        async def deaf(id):
            await clock.sleep(10_000)

        broker._devices["q"].stop = deaf
        await broker.tasks.cancel(ANN, task["id"])
        await crash(broker)
        broker = broker_on([FakeDevice(vendor)], tmp_path / "s.db", clock)
        await broker.start()
        assert (await broker.tasks.wait(ANN, task["id"]))["state"] == "cancelled"
        assert clock.now_us() < 10_000_000
        await broker.close()

    run_virtual(main)


@scenario
async def test_a_line_that_breaks_after_the_task_arrived(broker, vendor, clock):
    task = await broker.tasks.submit(ANN, order("lost answer"))
    assert (await broker.tasks.wait(ANN, task["id"]))["state"] == "done"
    assert vendor.runs == {"lost answer": 1}


def test_faults_are_tried_again_with_a_new_token_within_bounds(tmp_path):
    async def main(clock):
        vendor = Vendor(clock, fault_rate=1.0)
        spec = DeviceSpec("q", retries=2)
        broker = broker_on([FakeDevice(vendor)], tmp_path / "s.db", clock, [spec])
        await broker.start()
        task = await broker.tasks.submit(ANN, order())
        view = await broker.tasks.wait(ANN, task["id"])
        assert (view["state"], view["reason"], view["attempts"]) == ("failed", "it broke", 3)
        assert list(vendor.ids) == [f"{task['id']}-{n}" for n in (1, 2, 3)]
        assert await broker.devices.reconcile(ROOT) == []
        await broker.close()

    run_virtual(main)


def test_retries_are_not_renewed_by_a_restart(tmp_path):
    async def main(clock):
        vendor = Vendor(clock, fault_rate=1.0)
        specs = [DeviceSpec("q", retries=2)]
        broker = broker_on([FakeDevice(vendor)], tmp_path / "s.db", clock, specs)
        await broker.start()
        task = await broker.tasks.submit(ANN, order(seconds=10.0))
        for _ in range(3):
            await clock.sleep(5.0)
            await crash(broker)
            broker = broker_on([FakeDevice(vendor)], tmp_path / "s.db", clock, specs)
            await broker.start()
            await clock.sleep(6.0)
        assert (await broker.tasks.wait(ANN, task["id"]))["state"] == "failed"
        assert len(vendor.ids) == 3
        await broker.close()

    run_virtual(main)


def test_reconcile_finds_what_differs(tmp_path):
    async def main(clock):
        vendor = Vendor(clock)
        broker = broker_on([FakeDevice(vendor, emulated=False)], tmp_path / "s.db", clock)
        await broker.start()
        for body in range(3):
            await broker.tasks.wait(ANN, (await broker.tasks.submit(ANN, order(body, seconds=2.0)))["id"])
        assert await broker.devices.reconcile(ROOT) == []
        vendor.seconds["v0"] = 5.0
        del vendor.seconds["v1"]
        vendor.seconds["other"] = 1.0
        problems = [(row["device_id"], row["problem"]) for row in await broker.devices.reconcile(ROOT)]
        assert problems == [
            ("v0", "billed seconds differ"),
            ("v1", "the vendor does not list it"),
            ("other", "the vendor bills a task that this broker does not know"),
        ]
        await broker.close()

    run_virtual(main)


def test_a_device_that_is_gone_fails_its_tasks(tmp_path):
    async def main(clock):
        vendor = Vendor(clock)
        broker = broker_on([FakeDevice(vendor)], tmp_path / "s.db", clock)
        await broker.start()
        session = await broker.sessions.open(ANN, "q", QpuHold.SHARE)
        task = await broker.tasks.submit(ANN, order(session=session["id"]))
        await crash(broker)
        broker = broker_on([FakeDevice(vendor, "p")], tmp_path / "s.db", clock)
        await broker.start()
        assert broker.tasks.status(ANN, task["id"])["reason"] == "QPU q is no longer there"
        assert broker.sessions.view(ANN, session["id"])["state"] == "closed"
        await broker.close()

    run_virtual(main)


def test_results_are_forgotten_after_their_time(tmp_path):
    async def main(clock):
        broker = broker_on([FakeDevice(Vendor(clock))], tmp_path / "s.db", clock, keep_s=100.0)
        await broker.start()
        task = await broker.tasks.submit(ANN, order())
        await broker.tasks.wait(ANN, task["id"])
        await clock.sleep(200.0)
        broker.tidy()
        await broker.database.durable()
        with pytest.raises(NotFound):
            broker.tasks.status(ANN, task["id"])
        await broker.close()

    run_virtual(main)


def test_a_full_disk_refuses_what_is_new_and_loses_nothing(tmp_path, caplog):
    async def main(clock):
        vendor = Vendor(clock)
        store = Database(tmp_path / "s.db", max_pages=60)
        broker = broker_on([FakeDevice(vendor)], store, clock)
        await broker.start()
        accepted, refused = [], []
        for n in range(40):
            try:
                accepted.append(await broker.tasks.submit(ANN, order(f"{n}" + 9000 * "x", seconds=1.0)))
            except StoreFull as error:
                refused.append(error)
        assert accepted
        assert refused
        assert "full" in refused[0].message
        assert len(broker.registry.tasks) == len(accepted)
        with pytest.raises(StoreFull):
            await broker.sessions.open(ANN, "q", QpuHold.SHARE, job="x" * 200_000)
        await clock.sleep(5.0)  # results have no room either: they wait
        store._db.execute("PRAGMA max_page_count = 100000")
        for task in accepted:
            assert (await broker.tasks.wait(ANN, task["id"]))["state"] == "done"
        assert (await broker.tasks.submit(ANN, order("again")))["state"] == "preparing"
        assert max(vendor.runs.values()) == 1
        await broker.close()
        assert integrity(tmp_path / "s.db") == []

    with caplog.at_level(logging.WARNING, "qloom.broker"):
        run_virtual(main)


def test_a_clock_that_went_back_is_not_followed(tmp_path, caplog):
    from qloom.broker.clock import ServiceClock

    with caplog.at_level(logging.WARNING, "qloom.broker"):
        clock = ServiceClock(floor_us=5_000_000, wall_us=lambda: 2_000_000)
    assert clock.now_us() >= 5_000_000
    assert caplog.messages == ["the clock went back by 3.0 s since the broker last ran: going on from the later time"]
