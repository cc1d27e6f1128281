"""The broker in virtual time: what it accepts, and in which order it runs."""

from __future__ import annotations

import json

import pytest

from qloom.broker.monitor import StateHook
from qloom.broker.problems import Conflict, Forbidden, NotFound
from qloom.errors import InputError, PayloadError, Refused
from qloom.model import QpuHold
from tests.broker.fakes import ANN, BOB, ROOT, order
from tests.broker.scenario import scenario


@scenario
async def test_a_task_runs_and_its_result_can_be_read_again(broker, vendor, clock):
    task = await broker.tasks.submit(ANN, order(7, seconds=2.0, name="mine"))
    assert task["state"] == "preparing"
    view = await broker.tasks.wait(ANN, task["id"])
    assert (view["state"], json.loads(view["result"]), view["billed_s"]) == ("done", {"echo": 7}, 2.0)
    assert view["ended_us"] - view["executing_us"] == 2_000_000
    assert broker.tasks.result(ANN, task["id"]) == view
    assert broker.registry.tasks == {}


@scenario
async def test_nobody_sees_an_end_that_is_not_durable(broker, vendor, clock):
    task = await broker.tasks.submit(ANN, order(seconds=1.0))
    seen = []

    def look(writes, commit=broker.database._commit):
        seen.append(broker.tasks.result(ANN, task["id"])["state"])
        commit(writes)

    broker.database._commit = look
    assert json.loads((await broker.tasks.wait(ANN, task["id"]))["result"]) == {"echo": 1}
    assert set(seen) == {"preparing", "executing"}


@scenario
async def test_tasks_wait_in_line_and_say_where(broker, vendor, clock):
    tasks = [await broker.tasks.submit(ANN, order(n, seconds=3.0)) for n in range(3)]
    last = broker.tasks.status(ANN, tasks[2]["id"])
    assert (last["position"], last["expected_wait_s"]) == (2, 6.0)
    assert broker.devices.queue(BOB) == {
        "devices": [{"device": "q", "queued": 2, "on_device": 1, "sessions_open": 0, "sessions_waiting": 0}],
        "mine": [],
    }
    assert [mine["position"] for mine in broker.devices.queue(ANN)["mine"]] == [0, 1, 2]
    for task in tasks:
        await broker.tasks.wait(ANN, task["id"])
    assert clock.now_us() == 9_000_000


@scenario
async def test_waiting_for_some_time_only(broker, vendor, clock):
    task = await broker.tasks.submit(ANN, order(seconds=10.0))
    assert (await broker.tasks.wait(ANN, task["id"], within_s=4.0))["state"] == "executing"
    assert clock.now_us() == 4_000_000
    assert broker.registry.tasks[task["id"]].ended == []


@scenario
async def test_the_same_key_makes_one_task(broker, vendor, clock):
    first = await broker.tasks.submit(ANN, order(1, key="k"))
    assert (await broker.tasks.submit(ANN, order(1, key="k")))["id"] == first["id"]
    await broker.tasks.wait(ANN, first["id"])
    assert (await broker.tasks.submit(ANN, order(1, key="k")))["id"] == first["id"]
    assert (await broker.tasks.submit(BOB, order(1, key="k")))["id"] != first["id"]
    with pytest.raises(Conflict):
        await broker.tasks.submit(ANN, order(2, key="k"))


@scenario
async def test_others_see_nothing(broker, vendor, clock):
    task = await broker.tasks.submit(ANN, order(name="secret"))
    for ask in (broker.tasks.status, broker.tasks.result):
        with pytest.raises(NotFound):
            ask(BOB, task["id"])
    for ask in (broker.tasks.wait, broker.tasks.cancel):
        with pytest.raises(NotFound):
            await ask(BOB, task["id"])
    assert broker.tasks.status(ROOT, task["id"])["name"] is None
    with pytest.raises(NotFound):
        broker.tasks.result(ROOT, task["id"])
    with pytest.raises(Forbidden):
        await broker.tasks.submit(BOB, order(project="physics"))
    with pytest.raises(Forbidden):
        await broker.devices.drain(ANN, "q", True)
    with pytest.raises(Forbidden):
        await broker.devices.reconcile(ANN)
    assert (await broker.tasks.cancel(ROOT, task["id"]))["name"] is None


@scenario
async def test_bad_input_is_one_clear_line(broker, vendor, clock):
    with pytest.raises(PayloadError, match="this is bad"):
        await broker.tasks.submit(ANN, order("bad"))
    with pytest.raises(PayloadError, match="cannot read this payload"):
        await broker.tasks.submit(ANN, order("crash"))
    with pytest.raises(InputError, match="no QPU is called 'x'"):
        await broker.tasks.submit(ANN, order(device="x"))
    session = await broker.sessions.open(ANN, "q", QpuHold.SHARE)
    await broker.sessions.close(ANN, session["id"])
    with pytest.raises(Refused, match="is closed"):
        await broker.tasks.submit(ANN, order(session=session["id"]))
    with pytest.raises(NotFound):
        await broker.tasks.submit(BOB, order(session=session["id"]))
    assert broker.registry.tasks == {}


@scenario
async def test_cancelling(broker, vendor, clock):
    running, waiting = [await broker.tasks.submit(ANN, order(n, seconds=60.0)) for n in range(2)]
    assert (await broker.tasks.cancel(ANN, waiting["id"]))["state"] == "cancelled"
    await clock.sleep(1.0)
    await broker.tasks.cancel(ANN, running["id"])
    assert (await broker.tasks.wait(ANN, running["id"]))["state"] == "cancelled"
    assert clock.now_us() < 3_000_000


@scenario
async def test_cancelled_before_the_device_has_it(broker, vendor, clock):
    broker._devices["q"].start_s = 4.0
    task = await broker.tasks.submit(ANN, order(seconds=60.0))
    await clock.sleep(1.0)
    await broker.tasks.cancel(ANN, task["id"])
    assert (await broker.tasks.wait(ANN, task["id"]))["state"] == "cancelled"
    assert list(vendor.stopped) == ["v0"]


@scenario
async def test_limits_in_time(broker, vendor, clock):
    slow = await broker.tasks.submit(ANN, order(1, seconds=60.0, time_limit_s=5.0))
    late = await broker.tasks.submit(ANN, order(2, seconds=1.0, max_wait_s=61.0))
    assert (await broker.tasks.wait(ANN, slow["id"]))["reason"] == "it ran longer than 5 s"
    assert (await broker.tasks.wait(ANN, late["id"]))["state"] == "done"
    with pytest.raises(Refused):
        await broker.tasks.submit(ANN, order(3, seconds=60.0)) and await broker.tasks.submit(
            ANN, order(4, max_wait_s=1.0)
        )
    await broker.devices.drain(ROOT, "q", True)
    waits = await broker.tasks.submit(BOB, order(5, max_wait_s=100.0))
    assert (await broker.tasks.wait(BOB, waits["id"]))["state"] == "expired"


@scenario
async def test_sessions_take_turns_and_close(broker, vendor, clock):
    whole = await broker.sessions.open(ANN, "q", QpuHold.WHOLE)
    assert whole["state"] == "open"
    share = await broker.sessions.open(BOB, "q", QpuHold.SHARE)
    assert share["state"] == "waiting"
    task = await broker.tasks.submit(ANN, order(seconds=50.0, session=whole["id"]))
    await clock.sleep(1.0)
    await broker.sessions.close(ANN, whole["id"])
    assert (await broker.sessions.wait_open(BOB, share["id"], within_s=5.0))["state"] == "open"
    assert (await broker.tasks.wait(ANN, task["id"]))["reason"] == "its session was closed"
    with pytest.raises(NotFound):
        broker.sessions.view(ANN, share["id"])
    assert (await broker.sessions.close(ANN, whole["id"]))["state"] == "closed"


@scenario
async def test_a_session_that_nobody_uses_is_closed(broker, vendor, clock):
    broker.session_idle_s = 100.0
    idle = await broker.sessions.open(ANN, "q", QpuHold.SHARE)
    busy = await broker.sessions.open(ANN, "q", QpuHold.SHARE)
    await broker.tasks.submit(ANN, order(seconds=500.0, session=busy["id"]))
    await clock.sleep(150.0)
    broker.tidy()
    await broker.database.durable()
    assert [broker.sessions.view(ANN, one["id"])["state"] for one in (idle, busy)] == ["closed", "open"]


@scenario
async def test_a_drained_device_starts_nothing_and_loses_nothing(broker, vendor, clock):
    told = []

    class Hook(StateHook):
        async def report(self, device, state):
            told.append((device, state))

    broker.monitor.hook = Hook(["told"])
    await broker.devices.drain(ROOT, "q", True)
    task = await broker.tasks.submit(ANN, order(seconds=1.0))
    await clock.sleep(100.0)
    assert broker.tasks.status(ANN, task["id"])["state"] == "queued"
    assert broker.tasks.status(ANN, task["id"])["expected_wait_s"] is None
    await broker.devices.drain(ROOT, "q", False)
    assert (await broker.tasks.wait(ANN, task["id"]))["state"] == "done"
    assert told == [("q", "drained"), ("q", "idle")]
