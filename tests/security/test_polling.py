"""Whoever polls leaves nothing behind in the broker, however often."""

from __future__ import annotations

import os
import signal

import pytest

from tests.security.server import Attacked, form, until

POLLS = 200
GROWTH = POLLS // 2  # caches fill up, and requests come and go; a leak would be an object for every poll


def objects(service: Attacked) -> int:
    """How many objects the broker's process has."""
    path = service.directory / "objects"
    path.unlink(missing_ok=True)
    assert service.process is not None
    os.kill(service.process.pid, signal.SIGUSR1)
    until(path.exists)
    return int(path.read_text())


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    counted = Attacked(tmp_path_factory.mktemp("polled"), module="tests.security.counted")
    counted.start()
    yield counted
    assert counted.stop() == 0, counted.log[-3000:]


@pytest.fixture(scope="module")
def waiting(service):
    """The paths of a session and a task that wait, behind another session that holds the whole device."""
    with service.client("ann") as ann:
        assert ann.post("/v1/sessions", json={"device": "q", "hold": "whole"}).json()["state"] == "open"
        session = ann.post("/v1/sessions", json={"device": "q"}).json()
        task = ann.post("/v1/tasks", json=form()).json()
    assert (session["state"], task["state"]) == ("waiting", "queued")
    return {"session": f"/v1/sessions/{session['id']}", "task": f"/v1/tasks/{task['id']}"}


@pytest.mark.parametrize("what", ["session", "task"])
@pytest.mark.parametrize("wait_s", [0, 0.001], ids=["a look", "a wait"])
def test_polling_leaves_nothing_behind(service, waiting, what, wait_s):
    with service.client("ann") as ann:

        def poll(times: int) -> None:
            for _ in range(times):
                view = ann.get(waiting[what], params={"wait": wait_s}).json()
                assert view["state"] in ("waiting", "queued")

        poll(50)
        before = objects(service)
        poll(POLLS)
        assert objects(service) < before + GROWTH
