"""The calibration of a device through a real broker: in its views, its store, and runs across a recalibration."""

from __future__ import annotations

import time

import pytest

import qloom
from qloom import qubo
from qloom.broker.client.sync import SyncBrokerClient
from qloom.errors import CalibrationChanged
from qloom.journal.events import QuantumEnded, QuantumStarted, Recalibrated
from qloom.model import Payload
from qloom.site import Site
from tests.broker.processes import Service

PROGRAM = """
from pathlib import Path
from qloom.model import Payload

HERE = Path(__file__).parent

async def program(job):
    for number in range(4):
        if number == 2:
            (HERE / "calibration").write_text("tuesday")
        await job.quantum(Payload("test", number, name="energy"))
        if number == 1 and (HERE / "fails").exists():
            (HERE / "fails").unlink()
            raise ValueError("killed here")
"""


@pytest.fixture
def service(tmp_path, monkeypatch):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path / "home"))
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "calibration").write_text("monday")
    running = Service(tmp_path, poll_s=0.05)
    running.start()
    yield running
    running.stop()


def run(service, **more):
    return qloom.run(str(service.directory / "program.py"), site=Site(broker=service.address), **more)


def events_of(outcome, kind):
    return [event for event in outcome.events if isinstance(event, kind)]


def calibrations(outcome):
    return [event.calibration for event in events_of(outcome, QuantumEnded)]


def test_a_run_through_a_broker_across_a_recalibration_warns(service):
    outcome = run(service)
    assert outcome.errors == []
    assert calibrations(outcome) == ["monday", "monday", "tuesday", "tuesday"]
    assert outcome.notes == [
        "QPU q was recalibrated during the run: its answers from quantum task 3 (energy) of job j1 on are of "
        "calibration tuesday, those before of monday"
    ]


def test_it_can_stop_there_and_be_resumed_without_running_anything_twice(service):
    stopped = run(service, on_recalibration="stop")
    assert isinstance(stopped.errors[0], CalibrationChanged)
    assert len(list(service.tasks.iterdir())) == 3
    resumed = qloom.resume(stopped.run, on_recalibration="continue")
    assert resumed.errors == []
    assert calibrations(resumed) == ["monday", "monday", "tuesday", "tuesday"]
    assert len(list(service.tasks.iterdir())) == 4


def test_a_resume_compares_with_what_the_broker_says_now(service):
    (service.directory / "fails").touch()
    assert "killed here" in str(run(service).errors[0])
    (service.directory / "calibration").write_text("tuesday")
    with SyncBrokerClient(service.address) as client:
        client.drain("q")
        client.drain("q", drained=False)  # the broker looks at the device
        assert client.device("q")["calibration"] == "tuesday"
    refused = qloom.resume("last", on_recalibration="stop")
    assert [error.message for error in refused.errors] == [
        "QPU q was recalibrated before the run was resumed: its answers from quantum task 1 (energy) of job j1 on "
        "are of calibration monday, new ones are of tuesday"
    ]
    assert len(events_of(refused, QuantumStarted)) == 2
    resumed = qloom.resume("last", on_recalibration="warn")
    assert resumed.errors == []
    assert [event.resumed for event in events_of(resumed, Recalibrated)] == [True, True]
    assert resumed.notes == [refused.errors[0].message]


def test_a_task_keeps_its_calibration_when_the_broker_is_killed(service):
    with SyncBrokerClient(service.address) as client:
        id = client.submit(Payload("test", 1, seconds=0.0))["id"]
        client.result(id)
        assert client.status(id)["calibration"] == "monday"
        service.kill()
        (service.directory / "calibration").write_text("tuesday")
        service.start()
        assert client.status(id)["calibration"] == "monday"
        assert client.device("q")["calibration"] == "tuesday"


def test_an_emulated_device_of_a_broker_has_the_calibration_of_its_windows(tmp_path):
    window = {"for_s": 1.0, "first_s": (time.time() + 43_200) % 86_400, "every_s": 86_400.0}  # half a day from now
    devices = [{"kind": "annealing", "name": "e", "calibration": [window]}, {"kind": "annealing", "name": "none"}]
    running = Service(tmp_path, module="tests.broker.plain", devices=devices)
    running.start()
    try:
        with SyncBrokerClient(running.address) as client:
            now = {view["name"]: view["calibration"] for view in client.devices()}
            assert now["e"] is not None
            assert now["none"] is None
            for name, calibration in now.items():
                id = client.submit(qubo({("a", "a"): -1.0}), device=name)["id"]
                assert client.wait(id)["calibration"] == calibration
    finally:
        running.stop()
