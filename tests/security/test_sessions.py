"""A session belongs to whoever opened it: nobody else runs in it, charges for it or learns its id."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import os

import pytest

from qloom.broker.requests import Caller
from qloom.broker.store.database import Database
from qloom.broker.store.schema import CHECKSUM, connect
from tests.security.site import ended, site

DEVICES = [{"kind": "annealing", "name": "q"}]
ME = getpass.getuser()


def delay(seconds=0.0, **more):
    return {"kind": "delay", "body": None, "seconds": seconds, **more}


async def opened(client, **more):
    answer = await client.post("/v1/sessions", json={"device": "q", **more})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def attack(test):
    """A test with the clients of ann and amy, who share a project, of bob and of an administrator."""

    def run(tmp_path):
        async def main():
            async with site(tmp_path, devices=DEVICES) as (broker, client), contextlib.AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(client(user)) for user in ("ann", "amy", "bob", "boss")]
                await test(broker, *clients)

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


@attack
async def test_a_member_cannot_use_see_or_close_the_session_of_another(broker, ann, amy, bob, boss):
    session = await opened(ann)
    for other in (amy, bob, boss):
        refused = await other.post("/v1/tasks", json=delay(session=session))
        assert refused.status_code in (403, 404), refused.text
    for other in (amy, bob):
        assert (await other.get(f"/v1/sessions/{session}")).status_code == 404
        assert (await other.delete(f"/v1/sessions/{session}")).status_code == 404
    assert broker.registry.tasks == {}
    task = await ann.post("/v1/tasks", json=delay(session=session))
    assert (await ended(ann, task.json()["id"]))["state"] == "done"
    assert (await ann.delete(f"/v1/sessions/{session}")).json()["state"] == "closed"
    assert (await amy.post("/v1/tasks", json=delay(session=session))).status_code == 404, "also once it is closed"


@attack
async def test_a_shared_session_is_for_the_members_of_its_project(broker, ann, amy, bob, boss):
    session = await opened(ann, shared=True)
    assert (await amy.get(f"/v1/sessions/{session}")).json()["user"] == "ann"
    task = await amy.post("/v1/tasks", json=delay(session=session))
    assert task.status_code == 201, task.text
    assert (task.json()["user"], task.json()["project"]) == ("amy", "physics")
    assert (await bob.post("/v1/tasks", json=delay(session=session))).status_code == 404
    assert (await amy.delete(f"/v1/sessions/{session}")).status_code == 403, "to end it is its owner's"


@attack
async def test_a_key_stands_for_one_session_and_never_for_another_device_or_hold(broker, ann, amy, bob, boss):
    form = {"device": "q", "key": "mine"}
    first = (await ann.post("/v1/sessions", json=form)).json()
    assert (await ann.post("/v1/sessions", json=form)).json()["id"] == first["id"]
    for change in ({"hold": "whole"}, {"shared": True}, {"device": "other"}):
        assert (await ann.post("/v1/sessions", json={**form, **change})).status_code == 409
    of_amy = (await amy.post("/v1/sessions", json={**form, "project": "physics"})).json()
    assert of_amy["id"] != first["id"], "a key belongs to its user"


@attack
async def test_a_task_is_charged_as_its_session_is(broker, ann, amy, bob, boss):
    session = await opened(amy, project="chemistry")
    other = await amy.post("/v1/tasks", json=delay(session=session, project="physics"))
    assert other.status_code == 409, other.text
    assert f"session {session} is charged to project chemistry, not physics" in other.json()["message"]
    plain = await amy.post("/v1/tasks", json=delay(session=session))
    assert plain.json()["project"] == "chemistry", "not the first of the caller's projects"


@attack
async def test_the_id_of_a_session_reaches_nobody_else(broker, ann, amy, bob, boss):
    heard = {user: broker.feed.listen(Caller(user, ("physics",))) for user in ("ann", "amy")}  # as /v1/events does
    session = await opened(ann)
    task = (await ann.post("/v1/tasks", json=delay(session=session))).json()["id"]
    await ended(ann, task)
    await ann.delete(f"/v1/sessions/{session}")

    async def told(listener):
        return json.dumps([(await listener.next())[1] for _ in range(listener.queue.qsize())])

    own, others = await told(heard["ann"]), await told(heard["amy"])
    assert session in own
    assert task in own
    assert task in others, "members see the tasks of their project"
    assert session not in others
    for path in (f"/v1/tasks/{task}", f"/v1/tasks/{task}/result", "/v1/queue"):
        answer = await amy.get(path)
        assert answer.status_code == 200
        assert session not in answer.text
    assert session in (await ann.get(f"/v1/tasks/{task}")).text


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """A stand-in for squeue: job 1 is ours and holds a share of the QPU, job 2 is ours and holds none."""
    rows = {"1": f"1|{os.getuid()}|RUNNING|cpu=1,gres/qpu=1|\n", "2": f"2|{os.getuid()}|RUNNING|cpu=1|\n"}
    for job, row in rows.items():
        (tmp_path / f"job-{job}").write_text(row)
    script = (
        'shift 4; for job in $(echo "$1" | tr , " "); do cat "$(dirname "$0")/job-$job" 2>/dev/null; done; exit 0'
    )
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_every_task_can_be_asked_for_a_slurm_job(squeue, tmp_path):
    async def main():
        slurm = {"require_job_for_tasks": True, "check_s": 0.05, "confirm_s": 0.1}
        users = {ME: ["physics"]}
        options = {"devices": DEVICES, "users": users, "slurm": slurm}
        async with site(tmp_path, **options) as (broker, client), client(ME) as me, client("boss") as boss:
            without = await me.post("/v1/tasks", json=delay())
            assert without.status_code == 409, without.text
            assert "needs a Slurm job that holds a share" in without.json()["message"]
            assert (await me.post("/v1/sessions", json={"device": "q"})).status_code == 409, "nor a session"
            for job in ("2", "3"):
                assert (await me.post("/v1/tasks", json=delay(slurm_job=job))).status_code in (403, 409)
            task = await me.post("/v1/tasks", json=delay(slurm_job="1"))
            assert (await ended(me, task.json()["id"]))["state"] == "done"
            session = await opened(me, slurm_job="1")
            inside = await me.post("/v1/tasks", json=delay(session=session))
            assert (await ended(me, inside.json()["id"]))["state"] == "done"
            await boss.post("/v1/devices/q/drain")
            waiting = await me.post("/v1/tasks", json=delay(slurm_job="1", key="k"))
            assert waiting.status_code == 201
            (squeue / "job-4").write_text((squeue / "job-1").read_text().replace("1|", "4|", 1))
            again = await me.post("/v1/tasks", json=delay(slurm_job="4", key="k"))  # a driver that was resumed
            assert again.json()["id"] == waiting.json()["id"]
            (squeue / "job-1").unlink()
            while session in broker.registry.sessions:  # looked at every check_s
                await asyncio.sleep(0.01)
            assert (await me.get(f"/v1/tasks/{again.json()['id']}")).json()["state"] == "queued"
            (squeue / "job-4").unlink()
            view = await ended(me, again.json()["id"])
            assert view["state"] == "cancelled"
            assert view["reason"] == "Slurm job 4 holds no share of QPU q for it any more"

    asyncio.run(main())


def test_a_store_of_the_version_before_goes_on(tmp_path):
    """Tasks and sessions that an older broker accepted are there, and a session of then is its owner's alone."""
    path = tmp_path / "broker.db"
    Database(path).close()
    old = connect(str(path))
    for table, columns in (
        ("tasks", ("held_us", "uncounted_us", "spent", "places", "ran_us", "counted_us")),
        ("sessions", ("shared", "reason")),
    ):
        for column in (CHECKSUM, *columns):
            old.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    old.execute("PRAGMA user_version = 1")
    old.execute(
        "INSERT INTO sessions (id, user, project, device, hold, job, state, requested_us, opened_us) "
        "VALUES ('s', 'ann', 'physics', 'q', 'share', 'ann', 'open', 1, 2)"
    )
    old.execute(
        "INSERT INTO tasks (id, user, project, device, session, job, name, digest, expected_s, priority, state, "
        "submitted_us) VALUES ('t', 'ann', 'physics', 'q', 's', 'ann', 'n', 'd', 0.0, 0, 'queued', 1)"
    )
    envelope = {"kind": "delay", "body": 7, "shots": 1, "seconds": 0.0, "options": {}}
    old.execute("INSERT INTO payloads VALUES ('t', ?)", (json.dumps(envelope),))
    old.close()

    async def main():
        async with site(tmp_path, devices=DEVICES) as (_, client), client("ann") as ann, client("amy") as amy:
            view = await ended(ann, "t")
            assert (view["state"], view["result"]) == ("done", 7)
            assert (await ann.get("/v1/sessions/s")).json()["state"] == "open"
            assert (await amy.post("/v1/tasks", json=delay(session="s"))).status_code == 404

    asyncio.run(main())
