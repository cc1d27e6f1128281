"""Nobody keeps a device from the others for ever or goes before them at will, and administrators can step in."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
import typer
from typer.testing import CliRunner

from qloom.broker.queue.policies import Project
from qloom.cli import broker as broker_commands
from qloom.cli import qpu as qpu_commands
from qloom.model import QpuHold
from tests.broker.fakes import ANN, ROOT, FakeDevice, Vendor, broker_on, crash, order, run_virtual
from tests.broker.processes import Service
from tests.security.site import ended, site

DEVICES = [{"kind": "annealing", "name": "q"}]
LONG_S = 3600.0  # longer than any test


def delay(seconds=0.0, **more):
    return {"kind": "delay", "body": None, "seconds": seconds, **more}


def attack(**values):
    """A test with the clients of ann, of bob and of an administrator, at a site with these values in its config."""

    def around(test):
        def run(tmp_path):
            async def main():
                given = {"devices": DEVICES, **values}
                async with site(tmp_path, **given) as (_, client), contextlib.AsyncExitStack() as stack:
                    await test(*[await stack.enter_async_context(client(user)) for user in ("ann", "bob", "boss")])

            asyncio.run(main())

        run.__name__ = test.__name__
        return run

    return around


async def whole(client, **more):
    answer = await client.post("/v1/sessions?wait=30", json={"device": "q", "hold": "whole", **more})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


# Whole holds


@attack(limits={"whole_idle_s": 0.2})
async def test_a_whole_device_that_is_held_idle_is_given_back_though_its_owner_asks_for_it(ann, bob, boss):
    session = await whole(ann)
    waiting = (await bob.post("/v1/tasks", json=delay())).json()["id"]
    while (await ann.get(f"/v1/sessions/{session}")).json()["state"] == "open":  # each of these counts as a use
        await asyncio.sleep(0.01)
    assert (await ended(bob, waiting))["state"] == "done"
    late = await ann.post("/v1/tasks", json=delay(session=session))
    assert late.status_code == 409
    assert "is closed: it held the whole device for 0.2 s without a task" in late.json()["message"]


@attack(limits={"whole_hold_s": 0.2})
async def test_a_whole_device_that_is_in_use_is_given_back_in_the_end(ann, bob, boss):
    session = await whole(ann)
    busy = (await ann.post("/v1/tasks", json=delay(LONG_S, session=session))).json()["id"]
    waiting = (await bob.post("/v1/tasks", json=delay())).json()["id"]
    assert (await ended(bob, waiting))["state"] == "done"
    view = await ended(ann, busy)
    assert view["state"] == "cancelled"
    assert "it held the whole device for 0.2 s, the longest that is allowed" in view["reason"]


@attack(projects={"physics": {"max_whole": 0}, "chemistry": {"max_whole": 1, "whole_idle_s": 0.2}})
async def test_a_project_may_hold_whole_devices_or_not(ann, bob, boss):
    refused = await ann.post("/v1/sessions", json={"device": "q", "hold": "whole"})
    assert refused.status_code == 409, refused.text
    assert "project physics may hold 0 whole devices at once" in refused.json()["message"]
    assert (await ann.post("/v1/sessions", json={"device": "q"})).status_code == 201, "a share it may"
    for session in (await ann.get("/v1/sessions")).json():
        await ann.delete(f"/v1/sessions/{session['id']}")
    held = await whole(bob)
    assert (await bob.post("/v1/sessions", json={"device": "q", "hold": "whole"})).status_code == 409
    while (await bob.get(f"/v1/sessions/{held}")).json()["state"] == "open":  # its own limit
        await asyncio.sleep(0.01)


@attack()
async def test_whole_holds_in_a_row_do_not_keep_a_task_from_outside_waiting(ann, bob, boss):
    first = await whole(ann)
    waiting = (await bob.post("/v1/tasks", json=delay())).json()["id"]
    rest = [(await ann.post("/v1/sessions", json={"device": "q", "hold": "whole"})).json()["id"] for _ in range(20)]
    await ann.delete(f"/v1/sessions/{first}")
    assert (await ended(bob, waiting))["state"] == "done"
    states = [(await ann.get(f"/v1/sessions/{session}?wait=1")).json()["state"] for session in rest[:1]]
    assert states == ["open"], "and then the next is opened"


# Priority


@attack(policy="priority", projects={"physics": {}, "chemistry": {"max_priority": 5}})
async def test_priority_is_a_right_of_the_project(ann, bob, boss):
    refused = await ann.post("/v1/tasks", json=delay(priority=1000))
    assert refused.status_code == 409, refused.text
    assert "project physics may give its tasks a priority of 0 at most, not 1000" in refused.json()["message"]
    assert (await ann.post("/v1/tasks", json=delay(priority=-3))).status_code == 201
    assert (await bob.post("/v1/tasks", json=delay(priority=5))).status_code == 201
    assert (await bob.post("/v1/tasks", json=delay(priority=6))).status_code == 409


def test_an_administrator_may_give_any_priority(tmp_path):
    async def main(clock):
        broker = broker_on(
            [FakeDevice(Vendor(clock))], tmp_path / "s.db", clock, projects=[Project("site", max_priority=0)]
        )
        await broker.start()
        assert (await broker.tasks.submit(ROOT, order(priority=1000)))["state"] in ("queued", "preparing")
        await broker.close()

    run_virtual(main)


# Administrators


@attack()
async def test_administrators_see_owners_and_others_see_their_own(ann, bob, boss):
    session = (await ann.post("/v1/sessions", json={"device": "q"})).json()["id"]
    task = (await ann.post("/v1/tasks", json=delay(LONG_S, session=session, name="secret"))).json()["id"]
    seen = (await boss.get("/v1/tasks?device=q")).json()
    assert [(one["id"], one["user"], one["project"], one["session"], one["name"]) for one in seen] == [
        (task, "ann", "physics", session, None)
    ], "whose it is, not what it is called"
    assert [(one["user"], one["tasks"], one["hold"]) for one in (await boss.get("/v1/sessions")).json()] == [
        ("ann", 1, "share")
    ]
    assert (await boss.get("/v1/sessions?device=other")).json() == []
    assert [one["id"] for one in (await ann.get("/v1/tasks")).json()] == [task]
    assert (await bob.get("/v1/tasks")).json() == (await bob.get("/v1/sessions")).json() == []


@attack()
async def test_only_administrators_evict_hold_release_and_requeue(ann, bob, boss):
    task = (await ann.post("/v1/tasks", json=delay(LONG_S))).json()["id"]
    for path in (f"tasks/{task}/hold", f"tasks/{task}/release", f"tasks/{task}/requeue"):
        for member in (ann, bob):
            assert (await member.post(f"/v1/{path}")).status_code == 403
    assert (await ann.post(f"/v1/evict/{task}", json={})).status_code == 403
    assert (await boss.post("/v1/evict/nothing", json={})).status_code == 404
    assert (await boss.post("/v1/tasks/nothing/hold")).status_code == 404
    gone = await boss.post(f"/v1/evict/{task}", json={"reason": "it blocks the course"})
    assert gone.status_code == 200, gone.text
    view = await ended(ann, task)
    assert (view["state"], view["reason"]) == ("cancelled", "an administrator ended it: it blocks the course")


@attack()
async def test_an_evicted_session_gives_the_device_back_and_its_owner_is_told(ann, bob, boss):
    session = await whole(ann)
    waiting = (await bob.post("/v1/tasks", json=delay())).json()["id"]
    gone = await boss.post(f"/v1/evict/{session}", json={"reason": "maintenance"})
    assert gone.json()["state"] == "closed"
    assert (await ended(bob, waiting))["state"] == "done"
    late = await ann.post("/v1/tasks", json=delay(session=session))
    assert "is closed: an administrator ended it: maintenance" in late.json()["message"]


@attack()
async def test_a_task_is_held_released_and_queued_again(ann, bob, boss):
    first = (await ann.post("/v1/tasks", json=delay(LONG_S))).json()["id"]
    held = (await ann.post("/v1/tasks", json=delay())).json()["id"]
    third = (await bob.post("/v1/tasks", json=delay())).json()["id"]
    assert (await boss.post(f"/v1/tasks/{held}/hold")).json()["held"] is True
    while (await ann.get(f"/v1/tasks/{first}")).json()["state"] != "executing":
        await asyncio.sleep(0.01)
    assert (await boss.post(f"/v1/tasks/{first}/hold")).status_code == 409
    assert (await boss.post(f"/v1/tasks/{first}/requeue")).status_code == 200
    assert (await ended(bob, third))["state"] == "done", "it was next"
    assert (await ann.get(f"/v1/tasks/{held}")).json()["state"] == "queued", "though the QPU was free for it"
    again = await ann.get(f"/v1/tasks/{first}?wait=30")
    assert (again.json()["state"], again.json()["attempts"]) == ("executing", 2)
    await boss.post(f"/v1/tasks/{held}/release")
    await ann.delete(f"/v1/tasks/{first}")
    assert (await ended(ann, held))["state"] == "done"


def test_holds_and_limits_outlive_a_restart(tmp_path):
    async def main(clock):
        vendor = Vendor(clock)
        options = {"projects": [Project("physics", whole_idle_s=100.0)]}

        async def start():
            broker = broker_on([FakeDevice(vendor)], tmp_path / "s.db", clock, **options)
            await broker.start()
            return broker

        broker = await start()
        first, held = [(await broker.tasks.submit(ANN, order(n, seconds=1000.0)))["id"] for n in range(2)]
        await broker.oversight.hold(ROOT, held)
        await clock.sleep(10.0)
        await broker.oversight.requeue(ROOT, first)
        await crash(broker)  # before the device has given it back
        broker = await start()
        await clock.sleep(10.0)
        assert broker.tasks.status(ANN, held)["held"] is True
        assert broker.tasks.status(ANN, first)["attempts"] == 2, "it was queued again, and started"
        await broker.tasks.cancel(ANN, first)
        await clock.sleep(10.0)
        assert broker.tasks.status(ANN, held)["state"] == "queued"
        session = (await broker.sessions.open(ANN, "q", QpuHold.WHOLE))["id"]
        await clock.sleep(60.0)
        await crash(broker)
        broker = await start()
        await clock.sleep(39.0)
        assert broker.sessions.view(ANN, session)["state"] == "open"
        await clock.sleep(2.0)
        await broker.database.durable()
        assert broker.sessions.view(ANN, session)["state"] == "closed"
        await broker.oversight.release(ROOT, held)
        assert (await broker.tasks.wait(ANN, held))["state"] == "done"
        await broker.close()

    run_virtual(main)


# The command line


app = typer.Typer()
broker_commands.add_to(app)
qpu_commands.add_to(app)


def qloom(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False, env={"COLUMNS": "140"})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.timeout(120)
def test_administrators_step_in_from_the_command_line(tmp_path, monkeypatch):
    service = Service(tmp_path, "tests.broker.plain", devices=DEVICES)
    service.start()
    try:
        monkeypatch.setenv("QLOOM_BROKER", service.address)
        problem = tmp_path / "p.json"
        problem.write_text(json.dumps({"linear": [["x", -1.0]], "quadratic": [], "offset": 0.0}))
        qloom("broker", "drain", "q")
        held, other = [qloom("qpu", "submit", str(problem), "--quiet").strip() for _ in range(2)]
        assert qloom("broker", "hold", held).strip() == f"{held} is held"
        rows = {row["id"]: row for row in json.loads(qloom("broker", "tasks", "--json"))}
        assert rows[held]["held"]
        assert rows[held]["user"]
        assert "held" in qloom("broker", "tasks")
        assert qloom("broker", "tasks", "--quiet", "--device", "q").split() == [held, other]
        said = qloom("broker", "evict", other, "--reason", "the course").strip()
        assert said == f"{other} is cancelled"
        assert json.loads(qloom("qpu", "status", other, "--json"))["reason"].endswith("the course")
        qloom("broker", "resume", "q")
        assert json.loads(qloom("qpu", "status", held, "--json"))["state"] == "queued"
        assert qloom("broker", "release", held).strip().startswith(f"{held} is ")
        assert "no" not in qloom("broker", "sessions", "--quiet")
    finally:
        assert service.stop() == 0
