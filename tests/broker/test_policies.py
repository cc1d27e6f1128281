"""Shares, priorities, budgets and limits as callers of the service see them."""

from __future__ import annotations

import asyncio
import json

import pytest

from qloom.broker.queue.lines import DeviceSpec
from qloom.broker.queue.policies import Project
from qloom.errors import InputError, Refused
from qloom.model import QpuHold
from tests.broker.fakes import ANN, FakeDevice, Vendor, broker_on, crash, order, run_virtual
from tests.broker.web import form, service


async def in_order(tmp_path, policy, submissions, projects=()):
    """The bodies of tasks in the order they ran; all were queued while the device was drained."""
    specs = [DeviceSpec("q", policy=policy)]
    async with service(tmp_path, specs=specs, projects=projects) as (broker, client, _app):
        async with client("ann") as ann, client("bob") as bob, client("root") as root:
            await root.post("/v1/devices/q/drain")
            who = {"ann": ann, "bob": bob}
            tasks = []
            for user, body, more in submissions:
                answer = await who[user].post("/v1/tasks", json=form(body, **{"seconds": 0.001, **more}))
                assert answer.status_code == 201, answer.text
                tasks.append((who[user], answer.json()["id"]))
            view = (await ann.get("/v1/devices/q")).json()
            assert view["promised_wait_s"] is None, "a policy that cannot promise says so"
            await root.post("/v1/devices/q/resume")
            for user, task in tasks:
                assert (await user.get(f"/v1/tasks/{task}/result?wait=30")).json()["state"] == "done"
        return list(broker._devices["q"].vendor.runs)


def test_fair_gives_each_project_its_share_over_http(tmp_path):
    submissions = [("ann", f"a{n}", {}) for n in range(16)] + [("bob", f"b{n}", {}) for n in range(16)]
    projects = [Project("physics", weight=3.0), Project("chemistry", weight=1.0)]
    ran = asyncio.run(in_order(tmp_path, "fair", submissions, projects))
    assert abs([body[0] for body in ran[:12]].count("a") - 9) <= 1
    assert sorted(ran) == sorted(body for _, body, _ in submissions)
    assert [body for body in ran if body[0] == "a"] == [f"a{n}" for n in range(16)], "a project's own come in order"


def test_priority_goes_first_over_http(tmp_path):
    submissions = [("ann", f"low{n}", {}) for n in range(3)]
    submissions += [("bob", "high", {"priority": 5}), ("ann", "middle", {"priority": 2}), ("ann", "low3", {})]
    ran = asyncio.run(in_order(tmp_path, "priority", submissions))
    assert ran == ["high", "middle", "low0", "low1", "low2", "low3"]


def test_every_attempt_that_used_the_device_is_charged(tmp_path):
    async def main(clock):
        class Billed(FakeDevice):
            async def wait(self, id):
                status = await super().wait(id)
                return type(status)(status.state, self.vendor.seconds[id], status.error, status.fault)

        vendor = Vendor(clock, fault_rate=1.0)
        options = {"specs": [DeviceSpec("q", retries=2)], "projects": [Project("physics", budget_s=40.0)]}
        broker = broker_on([Billed(vendor)], tmp_path / "s.db", clock, **options)
        await broker.start()
        task = await broker.tasks.submit(ANN, order(seconds=10.0))
        await clock.sleep(15.0)  # the second attempt runs
        await crash(broker)
        broker = broker_on([Billed(vendor)], tmp_path / "s.db", clock, **options)
        await broker.start()
        view = await broker.tasks.wait(ANN, task["id"])
        assert (view["state"], view["attempts"], view["billed_s"]) == ("failed", 3, 30.0)
        assert broker.core.ledger.used_s == {"physics": 30.0}
        assert broker.core.ledger.usage.of("physics") == pytest.approx(30.0, rel=1e-3)
        with pytest.raises(Refused, match=r"10\.0 QPU-seconds left of 40"):
            await broker.tasks.submit(ANN, order(seconds=11.0))
        await broker.close()

    run_virtual(main)


def test_a_device_does_not_wait_while_an_answer_is_fetched(tmp_path):
    async def main(clock):
        class Slow(FakeDevice):
            async def result(self, id):
                await clock.sleep(5.0)
                return await super().result(id)

        vendor = Vendor(clock)
        broker = broker_on([Slow(vendor, emulated=False)], tmp_path / "s.db", clock)
        await broker.start()
        session = await broker.sessions.open(ANN, "q", QpuHold.SHARE)
        tasks = [
            await broker.tasks.submit(ANN, order(n, 1.0, session=session["id"] if n > 1 else None)) for n in range(4)
        ]
        views = [await broker.tasks.wait(ANN, task["id"]) for task in tasks]
        assert {view["state"] for view in views} == {"done"}
        assert sorted(vendor.ends_us.values()) == [1_000_000, 2_000_000, 3_000_000, 4_000_000]
        assert [json.loads(view["result"]) for view in views] == [{"echo": n} for n in range(4)]
        assert broker.core.ledger.used_s == {"physics": 4.0}, "fetching is no use of the device"
        await broker.close()

    run_virtual(main)


def test_the_limit_on_execution_may_be_longer_than_what_is_admitted(tmp_path):
    async def main(clock):
        class Late(FakeDevice):
            def seconds(self, payload):
                return super().seconds(payload) * (0.9 if asyncio.current_task() is self.submitting else 1.0)

        device = Late(Vendor(clock))
        device.submitting = asyncio.current_task()
        spec = DeviceSpec("q", shares=3, outside_limit=1, longest_s=9.0, limit_s=12.0)
        assert spec.promised_wait_s() == 3 * 12.0
        broker = broker_on([device], tmp_path / "s.db", clock, [spec])
        await broker.start()
        fine = await broker.tasks.submit(ANN, order(1, seconds=10.0))  # nine were expected, and ten it takes
        assert (await broker.tasks.wait(ANN, fine["id"]))["state"] == "done"
        with pytest.raises(Refused, match="longer than QPU q admits"):
            await broker.tasks.submit(ANN, order(2, seconds=10.1))
        await broker.close()

    run_virtual(main)


def test_an_unknown_policy_is_one_line():
    from qloom.broker.config import config_from

    with pytest.raises(InputError, match="there is none called 'lottery'"):
        config_from({"policy": "lottery"}, "config")
