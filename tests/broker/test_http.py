"""The service: answers, errors, limits, events, metrics."""

from __future__ import annotations

import asyncio
import json
import logging

import httpx
import pytest

from qloom.broker.feed import News
from qloom.broker.queue.policies import Project
from tests.broker.web import form, service


def web(test):
    """A test with a service around it."""

    def run(tmp_path):
        async def main():
            async with service(tmp_path) as parts:
                await test(*parts)

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


def is_problem(answer: httpx.Response, status: int, error: str) -> bool:
    body = answer.json()
    assert answer.status_code == status, answer.text
    assert list(body) == ["error", "message", "hint"]
    return body["error"] == error and "\n" not in body["message"]


@web
async def test_a_task_from_submission_to_result(broker, client, app):
    async with client("ann") as ann:
        made = await ann.post("/v1/tasks", json=form(7, name="mine"))
        assert made.status_code == 201
        id = made.json()["id"]
        done = (await ann.get(f"/v1/tasks/{id}/result", params={"wait": 10})).json()
        assert (done["state"], done["result"], done["name"]) == ("done", {"echo": 7}, "mine")
        assert (await ann.get(f"/v1/tasks/{id}")).json()["state"] == "done"
        assert (await ann.delete(f"/v1/tasks/{id}")).json()["state"] == "done"


@web
async def test_the_key_may_be_a_header(broker, client, app):
    async with client("ann", **{"Idempotency-Key": "abc"}) as ann:
        ids = [(await ann.post("/v1/tasks", json=form())).json()["id"] for _ in range(2)]
        assert ids[0] == ids[1]
        assert is_problem(await ann.post("/v1/tasks", json=form(2)), 409, "Conflict")


@web
async def test_no_or_a_wrong_credential_is_401(broker, client, app):
    for user, headers in ((None, {}), ("nobody", {}), (None, {"Authorization": "Basic eDp5"})):
        async with client(user, **headers) as stranger:
            for ask in (
                stranger.get("/v1/queue"),
                stranger.post("/v1/tasks", content=b"{"),
                stranger.get("/v1/nowhere"),
                stranger.get("/v1/events"),
            ):
                answer = await ask
                assert is_problem(answer, 401, "Unauthenticated")
                assert answer.headers["www-authenticate"] == "Bearer"
    async with client() as anybody:
        assert (await anybody.get("/healthz")).json()["status"] == "ok"


@web
async def test_a_foreign_task_is_404_like_one_that_is_not_there(broker, client, app):
    async with client("ann") as ann, client("bob") as bob:
        id = (await ann.post("/v1/tasks", json=form(name="secret"))).json()["id"]
        foreign = await bob.get(f"/v1/tasks/{id}")
        nowhere = await bob.get(f"/v1/tasks/{id[::-1]}")
        assert is_problem(foreign, 404, "NotFound")
        assert foreign.json()["message"].replace(id, "") == nowhere.json()["message"].replace(id[::-1], "")
        assert is_problem(await bob.delete(f"/v1/tasks/{id}"), 404, "NotFound")
        assert is_problem(await bob.get(f"/v1/tasks/{id}/result?wait=1"), 404, "NotFound")
        assert "secret" not in (await bob.get("/v1/queue")).text
        assert is_problem(await bob.post("/v1/tasks", json=form(project="physics")), 403, "Forbidden")


@web
async def test_only_administrators_drain_resume_and_reconcile(broker, client, app):
    async with client("ann") as ann, client("root") as root:
        assert is_problem(await ann.post("/v1/devices/q/drain"), 403, "Forbidden")
        assert is_problem(await ann.put("/v1/devices/q/shares", json={"shares": 2}), 403, "Forbidden")
        assert is_problem(await ann.get("/v1/reconcile"), 403, "Forbidden")
        assert (await root.post("/v1/devices/q/drain")).json()["up"] is False
        waiting = (await ann.post("/v1/tasks", json=form())).json()["id"]
        assert (await ann.get(f"/v1/tasks/{waiting}")).json()["position"] == 0
        assert (await root.post("/v1/devices/q/resume")).json()["up"] is True
        assert (await ann.get(f"/v1/tasks/{waiting}/result?wait=5")).json()["state"] == "done"
        assert (await root.put("/v1/devices/q/shares", json={"shares": 2})).json()["shares"] == 2
        assert (await root.get("/v1/reconcile")).json() == []


@web
async def test_bad_input_is_one_line(broker, client, app):
    async with client("ann") as ann:
        assert is_problem(await ann.post("/v1/tasks", json=form("bad")), 422, "PayloadError")
        assert is_problem(await ann.post("/v1/tasks", json=form(kind="tea")), 422, "PayloadError")
        assert is_problem(await ann.post("/v1/tasks", json=form(device="x")), 400, "InputError")
        assert is_problem(await ann.post("/v1/tasks", json=form(shots=0)), 422, "InputError")
        assert is_problem(await ann.post("/v1/tasks", json=form(colour=1)), 422, "InputError")
        assert is_problem(await ann.post("/v1/tasks", content=b"{"), 422, "InputError")
        assert is_problem(await ann.get("/v1/devices/x"), 404, "NotFound")
        assert is_problem(await ann.get("/v1/nowhere"), 404, "InputError")
        session = (await ann.post("/v1/sessions", json={"device": "q"})).json()
        await ann.delete(f"/v1/sessions/{session['id']}")
        assert is_problem(await ann.post("/v1/tasks", json=form(session=session["id"])), 409, "Refused")


@pytest.mark.parametrize("body", ["[" * 100_000, '{"a":' * 50_000, "NaN", '"\\ud800"', "1" * 5000, "1e999", "\x00"])
def test_strange_bodies_never_stop_the_service(tmp_path, body):
    async def main():
        async with service(tmp_path) as (_broker, client, _app), client("ann") as ann:
            for text in (body, f'{{"kind": "test", "body": {body}}}', f'{{"kind": {body}, "body": 1}}'):
                answer = await ann.post("/v1/tasks", content=text.encode())
                assert answer.status_code < 500, answer.text
            assert (await ann.post("/v1/tasks", json=form())).status_code == 201

    asyncio.run(main())


def test_a_budget_that_is_used_up(tmp_path):
    async def main():
        projects = [Project("physics", budget_s=1.0)]
        async with service(tmp_path, projects=projects) as (_broker, client, _app), client("ann") as ann:
            answer = await ann.post("/v1/tasks", json=form(seconds=2.0))
            assert is_problem(answer, 409, "Refused")
            assert "QPU-seconds left of 1" in answer.json()["message"]

    asyncio.run(main())


def test_too_large_and_too_often(tmp_path):
    async def chunks():
        for _ in range(100):
            yield b"x" * 100

    async def main():
        limits = {"max_bytes": 2000, "requests_per_s": 0.001, "burst": 6}  # those that are too large count
        async with service(tmp_path, **limits) as (broker, client, _app), client("ann") as ann, client("bob") as bob:
            assert is_problem(await ann.post("/v1/tasks", json=form("x" * 3000)), 413, "TooLarge")
            assert is_problem(await ann.post("/v1/tasks", content=chunks()), 413, "TooLarge")
            for _ in range(4):
                assert (await ann.get("/v1/queue")).status_code == 200
            often = await ann.get("/v1/queue")
            assert is_problem(often, 429, "TooManyRequests")
            assert often.headers["retry-after"] == "1"
            assert (await bob.get("/v1/queue")).status_code == 200
            assert broker.registry.tasks == {}

    asyncio.run(main())


def test_a_full_disk_is_507(tmp_path):
    async def main():
        async with service(tmp_path) as (broker, client, _app), client("ann") as ann:
            pages = broker.database.row("PRAGMA page_count")[0]
            broker.database._db.execute(f"PRAGMA max_page_count = {pages}")
            answers = [await ann.post("/v1/tasks", json=form("x" * 50_000)) for _ in range(3)]
            assert is_problem(answers[-1], 507, "StoreFull")
            assert "full" in answers[-1].json()["message"]
            broker.database._db.execute("PRAGMA max_page_count = 100000")
            assert (await ann.post("/v1/tasks", json=form())).status_code == 201

    asyncio.run(main())


@web
async def test_metrics_have_no_jobs_in_them(broker, client, app):
    async with client("ann") as ann, client() as prometheus:
        for _ in range(3):
            id = (await ann.post("/v1/tasks", json=form(name="secret"))).json()["id"]
            await ann.get(f"/v1/tasks/{id}/result?wait=5")
        page = (await prometheus.get("/metrics")).text
    assert 'qloom_tasks_total{device="q",state="done"} 3.0' in page
    assert 'qloom_queue_length{device="q"} 0.0' in page
    assert 'qloom_task_wait_seconds_count{device="q"} 3.0' in page
    assert "qloom_device_utilisation" in page
    for private in ("secret", "ann", "physics", id):
        assert private not in page


def test_events_reach_those_who_may_see_them(tmp_path):
    async def main():
        async with service(tmp_path) as (broker, client, _app), client("ann") as ann:
            from qloom.broker.feed import stream_events
            from tests.broker.fakes import ANN, BOB

            own, foreign = stream_events(broker.feed, ANN), stream_events(broker.feed, BOB)
            assert (await anext(own)).startswith(":")
            assert (await anext(foreign)).startswith(":")
            await ann.post("/v1/tasks", json=form())
            states, ids = [], []
            while "done" not in states:
                id, kind, data = (await anext(own)).strip().split("\n")
                assert kind == "event: task"
                ids.append(id.removeprefix("id: "))
                states.append(json.loads(data.removeprefix("data: "))["state"])
            assert states == ["queued", "preparing", "executing", "done"]
            resumed = stream_events(broker.feed, ANN, ids[1])
            await anext(resumed)
            again = [await anext(resumed), await anext(resumed)]
            assert [event.split("\n")[0] for event in again] == [f"id: {ids[2]}", f"id: {ids[3]}"]
            await resumed.aclose()
            broker.feed.close()
            with pytest.raises(StopAsyncIteration):
                await anext(foreign)

    asyncio.run(main())


@pytest.mark.parametrize("last", ["{life}-3", "0-5", "{life}-99999", "nonsense", "{life}-²"])
def test_a_listener_is_told_if_something_is_gone(last):
    from qloom.broker.feed import KEPT, EventFeed
    from tests.broker.fakes import ANN, BOB

    async def main():
        feed = EventFeed("ab")
        for number in range(KEPT + 5):
            feed.publish(News(event := {"event": "task", "number": number}, "physics", "amy", event))
        queue = feed.listen(ANN, last.format(life="ab")).queue
        told = [queue.get_nowait() for _ in range(queue.qsize())]
        assert told[0][1].event["event"] == "missed"
        assert len(told) == (KEPT + 1 if last == "{life}-3" else 1)
        foreign = feed.listen(BOB, f"ab-{KEPT}").queue
        assert foreign.empty()
        up_to_date = feed.listen(ANN, told[-1][0]).queue
        assert up_to_date.empty()

    asyncio.run(main())


def test_a_listener_that_does_not_listen_is_cut_off(tmp_path):
    async def main():
        from qloom.broker.feed import BACKLOG
        from tests.broker.fakes import ANN

        async with service(tmp_path) as (broker, _client, _app):
            queue = broker.feed.listen(ANN).queue
            for _ in range(BACKLOG + 10):
                broker.feed.publish(News({"event": "device"}))
            assert queue.qsize() == BACKLOG + 1
            assert broker.feed._listeners == {}

    asyncio.run(main())


def test_no_secret_is_ever_logged(tmp_path, caplog):
    async def main():
        async with service(tmp_path) as (_broker, client, _app), client("qloom_wrongtoken123") as stranger:
            assert "wrongtoken" not in (await stranger.get("/v1/queue")).text

    with caplog.at_level(logging.DEBUG, "qloom"):
        asyncio.run(main())
    assert "wrongtoken" not in caplog.text
    assert "qloom_" not in (tmp_path / "tokens.json").read_text()
    assert (tmp_path / "tokens.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "s.db").stat().st_mode & 0o777 == 0o600
