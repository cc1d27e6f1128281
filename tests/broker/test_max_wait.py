"""A limit on waiting counts what its own session has queued before, now and after shares change or a restart."""

from __future__ import annotations

import asyncio

import pytest

from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.events import (
    SessionRequested,
    StartTask,
    TaskAdvanced,
    TaskCancelled,
    TaskFinished,
    TaskSubmitted,
)
from qloom.broker.queue.lines import DeviceSpec
from qloom.broker.queue.task import QuantumTask
from qloom.errors import Refused
from qloom.model import QpuHold
from tests.broker.fakes import ANN, BOB, ROOT, FakeDevice, Vendor, broker_on, crash, order, run_virtual
from tests.broker.web import form, service


def test_a_limit_behind_a_minute_of_the_same_session_is_refused_over_http(tmp_path):
    async def main():
        spec = DeviceSpec("q", shares=1, outside_limit=0, longest_s=60.0)
        async with service(tmp_path, specs=[spec]) as (_broker, client, _app), client("ann") as ann:
            session = (await ann.post("/v1/sessions", json={"device": "q"})).json()["id"]
            first = await ann.post("/v1/tasks", json=form(1, seconds=60.0, session=session, max_wait_s=0.0))
            assert first.status_code == 201, "nothing is before it"
            late = await ann.post("/v1/tasks", json=form(2, seconds=1.0, session=session, max_wait_s=10.0))
            assert late.status_code == 409
            assert late.json()["message"] == (
                "QPU q can promise to start this task within 60 s, not within 10 s: 1 of its session goes before it"
            )
            patient = await ann.post("/v1/tasks", json=form(3, seconds=1.0, session=session, max_wait_s=60.0))
            assert patient.status_code == 201
            for task in (patient, first):
                await ann.delete(f"/v1/tasks/{task.json()['id']}")

    asyncio.run(main())


def on_a_device(test):
    """A test in virtual time with a device that can promise: 10 s per task, none from outside."""

    def run(tmp_path):
        async def main(clock):
            vendor = Vendor(clock)

            async def start(shares=2):
                spec = DeviceSpec("q", shares=shares, outside_limit=0, longest_s=10.0)
                broker = broker_on([FakeDevice(vendor)], tmp_path / "s.db", clock, [spec])
                await broker.start()
                return broker

            await test(start, clock)

        run_virtual(main)

    run.__name__ = test.__name__
    return run


@on_a_device
async def test_in_a_whole_device_only_its_own_tasks_are_before_one(start, clock):
    broker = await start()
    outside = await broker.tasks.submit(BOB, order(0, seconds=10.0))
    await broker.tasks.wait(BOB, outside["id"])
    whole = (await broker.sessions.open(ANN, "q", QpuHold.WHOLE))["id"]
    await broker.tasks.submit(BOB, order(0, seconds=10.0))  # waits until the device is given back
    await broker.tasks.submit(ANN, order(1, seconds=60.0, session=whole, max_wait_s=0.0))
    with pytest.raises(Refused, match="in about 60 s, not within 10 s"):
        await broker.tasks.submit(ANN, order(2, session=whole, max_wait_s=10.0))
    fits = await broker.tasks.submit(ANN, order(3, session=whole, max_wait_s=61.0))
    assert (await broker.tasks.wait(ANN, fits["id"]))["state"] == "done"
    await broker.close()


@on_a_device
async def test_more_shares_wait_for_a_task_that_was_promised_less(start, clock):
    broker = await start()
    ann, bob = [(await broker.sessions.open(who, "q", QpuHold.SHARE))["id"] for who in (ANN, BOB)]
    await broker.tasks.submit(BOB, order(seconds=10.0, session=bob))
    await broker.tasks.submit(ANN, order(seconds=10.0, session=ann))
    limited = await broker.tasks.submit(ANN, order(seconds=10.0, session=ann, max_wait_s=30.0))  # 10 + 10 + 10
    assert (await broker.devices.set_shares(ROOT, "q", 4))["promised_wait_s"] == 30.0
    more = [(await broker.sessions.open(BOB, "q", QpuHold.SHARE))["id"] for _ in range(2)]
    await crash(broker)
    broker = await start()
    for session in (bob, *more):
        await broker.tasks.submit(BOB, order(seconds=10.0, session=session))
    assert [broker.sessions.view(BOB, session)["state"] for session in more] == ["waiting", "waiting"]
    assert (await broker.tasks.wait(ANN, limited["id"]))["state"] == "done"
    for session in more:
        assert (await broker.sessions.wait_open(BOB, session, within_s=60.0))["state"] == "open"
    await broker.close()


@on_a_device
async def test_fewer_shares_promise_what_the_open_sessions_allow(start, clock):
    broker = await start()
    sessions = [(await broker.sessions.open(ANN, "q", QpuHold.SHARE))["id"] for _ in range(2)]
    assert (await broker.devices.set_shares(ROOT, "q", 1))["promised_wait_s"] == 10.0, "two are open"
    with pytest.raises(Refused, match="within 10 s, not within 5 s"):
        await broker.tasks.submit(ANN, order(session=sessions[0], max_wait_s=5.0))
    await broker.sessions.close(ANN, sessions[1])
    assert broker.devices.view("q")["promised_wait_s"] == 0.0
    await broker.close()


@on_a_device
async def test_a_share_is_free_once_its_task_has_left_the_device(start, clock):
    broker = await start()
    broker._devices["q"].stop = lambda id: asyncio.sleep(0)  # it cannot stop anything
    closing, other = [(await broker.sessions.open(BOB, "q", QpuHold.SHARE))["id"] for _ in range(2)]
    await broker.tasks.submit(BOB, order(seconds=10.0, session=closing))
    await broker.tasks.submit(BOB, order(seconds=10.0, session=other))
    await broker.sessions.close(BOB, closing)
    late = (await broker.sessions.open(ANN, "q", QpuHold.SHARE))["id"]
    assert broker.sessions.view(ANN, late)["state"] == "waiting"
    await broker.sessions.wait_open(ANN, late)
    task = await broker.tasks.submit(ANN, order(seconds=1.0, session=late, max_wait_s=10.0))
    assert (await broker.tasks.wait(ANN, task["id"]))["state"] == "done"
    await broker.close()


@on_a_device
async def test_after_a_restart_nobody_goes_twice_before_a_task_that_waits(start, clock):
    broker = await start(shares=3)
    await clock.sleep(1.0)
    a, b, c = [(await broker.sessions.open(ANN, "q", QpuHold.SHARE))["id"] for _ in range(3)]
    await broker.tasks.submit(ANN, order("a1", seconds=10.0, session=a))
    await broker.tasks.submit(ANN, order("a2", seconds=10.0, session=a))
    await broker.tasks.submit(ANN, order("c1", seconds=10.0, session=c))
    task = await broker.tasks.submit(ANN, order("b1", seconds=10.0, session=b, max_wait_s=20.0))  # for a1 and c1
    await clock.sleep(12.0)  # c1 runs, and a2 waits behind b1
    await crash(broker)
    broker = await start(shares=3)
    assert (await broker.tasks.wait(ANN, task["id"]))["state"] == "done"
    await broker.close()


@on_a_device
async def test_after_a_restart_a_session_that_came_later_does_not_go_before_a_task_that_waits(start, clock):
    broker = await start(shares=3)
    await clock.sleep(1.0)
    a, b, c = [(await broker.sessions.open(ANN, "q", QpuHold.SHARE))["id"] for _ in range(3)]
    await broker.tasks.submit(ANN, order("b1", seconds=1.0, session=b))
    await clock.sleep(2.0)
    await broker.tasks.submit(ANN, order("a1", seconds=10.0, session=a))
    await broker.tasks.submit(ANN, order("c1", seconds=10.0, session=c))
    task = await broker.tasks.submit(ANN, order("b2", seconds=10.0, session=b, max_wait_s=20.0))  # for a1 and c1
    await clock.sleep(11.0)  # c1 runs
    await broker.sessions.close(ANN, a)
    late = (await broker.sessions.open(BOB, "q", QpuHold.SHARE))["id"]
    await broker.tasks.submit(BOB, order("d1", seconds=10.0, session=late))
    await crash(broker)
    broker = await start(shares=3)
    assert (await broker.tasks.wait(ANN, task["id"]))["state"] == "done"
    await broker.close()


@on_a_device
async def test_a_restart_in_the_middle_of_a_wait_does_not_let_more_sessions_in(start, clock):
    """How long the task before it has run already is not known then, and need not be."""
    broker = await start(shares=1)
    ann = (await broker.sessions.open(ANN, "q", QpuHold.SHARE))["id"]
    await broker.tasks.submit(ANN, order(seconds=10.0, session=ann))
    limited = await broker.tasks.submit(ANN, order(seconds=10.0, session=ann, max_wait_s=10.0))
    await clock.sleep(6.0)
    await crash(broker)
    broker = await start(shares=1)
    await broker.devices.set_shares(ROOT, "q", 2)
    bob = (await broker.sessions.open(BOB, "q", QpuHold.SHARE))["id"]
    await broker.tasks.submit(BOB, order(seconds=10.0, session=bob))
    assert broker.sessions.view(BOB, bob)["state"] == "waiting"
    assert (await broker.tasks.wait(ANN, limited["id"]))["state"] == "done"
    assert (await broker.sessions.wait_open(BOB, bob, within_s=60.0))["state"] == "open"
    await broker.close()


def test_a_task_that_is_tried_again_does_not_lengthen_its_turn():
    """Tasks with one set-up share a turn only if all attempts in it fit, whatever came and went meanwhile."""
    core = QueueCore([DeviceSpec("q", shares=2, outside_limit=0, longest_s=10.0, retries=1)])
    for session in ("a", "b"):
        core.handle(SessionRequested(session, "q", QpuHold.SHARE))
    core.handle(TaskSubmitted(QuantumTask("a1", "q", "a", 0.01, time_limit_s=10.0, set_up="x")))
    core.handle(TaskSubmitted(QuantumTask("b1", "q", "b", 10.0)))
    core.handle(TaskAdvanced("a1", "executing"))
    core.handle(TaskSubmitted(QuantumTask("a2", "q", "a", 1.0, set_up="y")))
    core.handle(TaskSubmitted(QuantumTask("a3", "q", "a", 9.9, time_limit_s=9.9, set_up="x")))
    core.handle(TaskCancelled("a2"))
    assert core.handle(TaskFinished("a1", fault=True), 10_000_000) == [StartTask("a1", "q")]
    core.handle(TaskAdvanced("a1", "executing"), 10_000_000)
    assert StartTask("b1", "q") in core.handle(TaskFinished("a1"), 10_100_000)
