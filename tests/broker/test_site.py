"""The service among a site's other parts: a cluster that is told of its devices, and a vendor's machine."""

from __future__ import annotations

import json
import time

import pytest

from qloom.broker.client.sync import SyncBrokerClient
from qloom.errors import PayloadError, QuantumFailed
from tests.broker.processes import ROOT, Service

CIRCUIT = {"kind": "qrmi", "body": {"variant": "IQMServer", "iqmjson": "{}", "job_type": "circuit"}}


def until(condition, what: str):
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        if (found := condition()) is not None:
            return found
        time.sleep(0.02)
    raise AssertionError(what)


def test_the_cluster_is_told_of_a_device_in_the_order_of_its_changes(tmp_path):
    told, hook = tmp_path / "told", tmp_path / "hook"
    slow_first = f'[ -e {told} ] || sleep 0.3; echo "$QLOOM_DEVICE $QLOOM_DEVICE_STATE" >> {told}'
    hook.write_text(f"#!/bin/sh\n{slow_first}\n")
    hook.chmod(0o755)
    devices = [{"kind": "annealing", "name": "q"}]
    service = Service(tmp_path, module="tests.broker.plain", hook=[str(hook)], devices=devices)
    service.start()
    with SyncBrokerClient(service.address, retry_s=5.0) as client:
        client.drain("q")
        task = client.submit({"kind": "delay", "body": 1, "seconds": 0.0})
        assert client.status(task["id"])["state"] == "queued"
        client.drain("q", False)
        assert client.result(task["id"]) == 1

    def states():
        lines = told.read_text().splitlines() if told.exists() else []
        return lines if "q drained" in lines and lines[-1] == "q idle" else None

    lines = until(states, "the cluster was not told, or in another order")
    assert lines.index("q drained") < len(lines) - 1
    assert service.stop() == 0


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    """A service in front of the stand-in of QRMI, which lives in a folder and outlives both."""
    monkeypatch.setenv("QRMI_STANDIN", str(tmp_path / "vendor"))
    monkeypatch.setenv("QRMI_STANDIN_S", "1.0")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "unit"))
    device = {"kind": "qrmi", "name": "iqm", "resource": "machine", "type": "iqm-server", "module": "qrmi_standin"}
    device |= {"poll_s": 0.05, "pause_s": 0.01, "tokens": str(tmp_path / "tokens.jsonl")}
    service = Service(tmp_path, module="tests.broker.plain", devices=[device], promise={"retries": 1})
    service.folder = tmp_path / "vendor" / "machine"
    service.folder.mkdir(parents=True)
    service.start()
    yield service
    if service.process.poll() is None:
        assert service.stop() == 0


@pytest.mark.slow
def test_a_vendors_task_outlives_the_broker_and_runs_once(vendor):
    with SyncBrokerClient(vendor.address, retry_s=20.0) as client:
        with pytest.raises(PayloadError, match="no QPU here takes a payload of kind 'delay'"):
            client.submit({"kind": "delay", "body": None, "seconds": 0.0})
        task = client.submit(CIRCUIT)
        until(lambda: client.status(task["id"])["executing_us"], "it did not start")
        vendor.kill()
        vendor.start()
        assert client.result(task["id"])["value"] == {"counter": {"01": 1}}
        assert client.status(task["id"])["attempts"] == 1
        assert [path.name for path in vendor.folder.glob("task-*.json")] == ["task-1.json"]
        (vendor.folder / "faults.json").write_text(json.dumps({"task_fails": 2, "status_raises": 2}))
        with pytest.raises(QuantumFailed, match="is failed"):
            client.run(CIRCUIT)
        view = client.device("iqm")
        assert (view["emulated"], view["tells_billed_s"]) == (False, False)
        assert client.reconcile() == []
