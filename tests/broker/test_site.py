"""The service among a site's other parts: a cluster that is told of its devices, and a vendor's machine."""

from __future__ import annotations

import json
import os
import time

import pytest

from qloom.broker.sync import SyncBrokerClient
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


def test_a_drained_device_drains_its_node(tmp_path, monkeypatch):
    told = tmp_path / "told"
    (tmp_path / "scontrol").write_text(
        "#!/bin/sh\n"
        f'case "$*" in *show*) grep -q DRAIN {told} && echo "NodeName=n Reason=QPU q: drained" ;; '
        f'*) echo "$*" >> {told} ;; esac\n'
    )
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    hook = [str(ROOT / "contrib" / "device-changed"), "other=m", "q=n"]
    service = Service(tmp_path, module="tests.broker.plain", hook=hook, devices=[{"kind": "annealing", "name": "q"}])
    service.start()

    def last():
        return told.read_text().splitlines()[-1] if told.exists() else None

    with SyncBrokerClient(service.address, retry_s=5.0) as client:
        client.drain("q")
        assert until(last, "nobody told the cluster") == "update NodeName=n State=DRAIN Reason=QPU q: drained"
        task = client.submit({"kind": "delay", "body": 1, "seconds": 0.0})
        assert client.status(task["id"])["state"] == "queued"
        client.drain("q", False)
        until(lambda: True if "RESUME" in last() else None, "the node was not resumed")
        assert client.result(task["id"]) == 1
    assert service.stop() == 0
    assert told.read_text().splitlines() == [
        "update NodeName=n State=DRAIN Reason=QPU q: drained",
        "update NodeName=n State=RESUME",
    ], "a node that nobody drained is not resumed when the broker starts"


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
