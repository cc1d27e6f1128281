"""Pulser code through a real service."""

# ruff: noqa: E402  what is imported first decides whether the rest can be

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pulser = pytest.importorskip("pulser", reason="NOT TESTED: pip install 'qloom[pulser]'")
pytest.importorskip("pulser_simulation", reason="NOT TESTED: pip install 'qloom[pulser]'")

import numpy as np
from pulser.backend import BackendConfig
from pulser.backend.qpu import QPUBackend
from pulser.backend.remote import BatchStatus, JobStatus, RemoteBackend, RemoteResults, RemoteResultsError

from qloom.broker.client.sync import SyncBrokerClient
from qloom.errors import InputError, PayloadError
from qloom.interop.pulser import QloomBackend, QloomConnection
from qloom.interop.pulser.connections import _counts
from tests.broker.processes import ROOT, Service

pytestmark = pytest.mark.slow  # real libraries, a real service

ATOMS = {"kind": "pulser", "name": "atoms", "set_up_s": 0.0, "per_shot_s": 0.0}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    service = Service(tmp_path_factory.mktemp("pulser"), "tests.broker.plain", devices=[ATOMS])
    service.start()
    with SyncBrokerClient(service.address) as client:
        client.service_address = service.address
        yield client
    assert service.stop() == 0


@pytest.fixture
def connection(broker):
    return QloomConnection(client=broker)


def blank(device=pulser.MockDevice, atoms=2):
    register = pulser.Register.rectangle(1, atoms, spacing=30, prefix="q")  # too far apart to notice each other
    sequence = pulser.Sequence(register, device)
    sequence.declare_channel("all", "rydberg_global")
    return sequence


def flip(area=np.pi, **options):
    sequence = blank(**options)
    sequence.add(pulser.Pulse.ConstantPulse(400, area / 0.4, 0, 0), "all")
    return sequence


def turn():
    sequence = blank()
    area = sequence.declare_variable("area")
    sequence.add(pulser.Pulse.ConstantDetuning(pulser.BlackmanWaveform(400, area), 0, 0), "all")
    return sequence


def test_a_sequence(connection):
    results = QloomBackend(flip(), connection).run([{"runs": 50}], wait=True)
    assert results.get_batch_status() is BatchStatus.DONE
    (one,) = results.results
    assert sum(one.final_bitstrings.values()) == 50
    assert one.final_bitstrings["11"] > 40
    assert one.atom_order == ("q0", "q1")
    assert one.total_duration == 400


def test_variables_one_task_each_and_another_process(connection, broker):
    params = [{"runs": 10, "variables": {"area": 0.0}}, {"runs": 20, "variables": {"area": np.pi}}]
    results = RemoteBackend(turn(), connection).run(params, wait=True)
    assert [dict(one.final_bitstrings) for one in results] == [{"00": 10}, {"11": 20}]
    with QloomConnection(address=broker.service_address) as other:
        again = RemoteResults(results.batch_id, other)
        assert again.job_ids == results.job_ids
        assert list(again.results) == list(results.results)
        one = RemoteResults(results.batch_id, other, job_ids=results.job_ids[1:])
        assert [dict(found.final_bitstrings) for found in one] == [{"11": 20}]
        with pytest.raises(RuntimeError, match="does not contain"):
            RemoteResults(results.batch_id, other, job_ids=["nothing"])


def test_a_real_device_and_default_shots(connection):
    sequence = pulser.Sequence(
        pulser.Register.rectangle(1, 2, spacing=30, prefix="q").with_automatic_layout(pulser.AnalogDevice),
        pulser.AnalogDevice,
    )
    sequence.declare_channel("all", "rydberg_global")
    sequence.add(pulser.Pulse.ConstantPulse(400, np.pi / 0.4, 0, 0), "all")
    config = BackendConfig(default_num_shots=7)
    for backend in (
        QPUBackend(sequence, connection, config=config),
        QloomBackend(sequence, connection, config=config),
    ):
        (one,) = backend.run(wait=True)
        assert sum(one.final_bitstrings.values()) == 7


def test_results_that_are_not_there_yet(connection, broker):
    broker.drain("atoms")
    try:
        results = QloomBackend(flip(), connection).run()
        assert results.get_batch_status() is BatchStatus.PENDING
        with pytest.raises(RemoteResultsError):
            _ = results.results
        assert results.get_available_results() == {}
        connection.cancel(results.batch_id)
        assert results.get_batch_status() is BatchStatus.CANCELED
        ((status, found),) = connection._query_job_progress(results.batch_id).values()
        assert status is JobStatus.CANCELED
        assert found is None
    finally:
        broker.drain("atoms", False)


def test_an_open_batch_holds_a_share(connection, broker):
    backend = QloomBackend(turn(), connection)
    with backend.open_batch():
        assert broker.queue()["devices"][0]["sessions_open"] == 1
        first = backend.run([{"runs": 5, "variables": {"area": 0.0}}])
        second = backend.run([{"runs": 6, "variables": {"area": np.pi}}])
        assert first.batch_id == second.batch_id
    assert broker.queue()["devices"][0]["sessions_open"] == 0
    assert [dict(one.final_bitstrings) for one in (*first, *second)] == [{"00": 5}, {"11": 6}]
    assert len(RemoteResults(first.batch_id, connection).results) == 2
    with pytest.raises(InputError, match="no open batch"):
        QloomConnection(client=broker).submit(flip(), batch_id="nothing")


def test_a_vendors_answer():
    answer = {"form": "vendor", "type": "pasqal-cloud", "value": {"counter": {"01": 3, "11": 1}}}
    assert _counts(answer) == ({"01": 3, "11": 1}, ["q0", "q1"])
    with pytest.raises(RemoteResultsError, match="counts"):
        _counts({"form": "vendor", "value": "strange"})


def test_what_is_refused_is_told_at_once(connection, broker):
    with pytest.raises(PayloadError, match="13 atoms"):
        QloomBackend(flip(atoms=13), connection).run()
    with pytest.raises(InputError, match="no QPU is called"):
        QloomBackend(flip(), device="nobody", client=broker).run()
    with pytest.raises(InputError, match="a connection has its own device"):
        QloomBackend(flip(), connection, device="atoms")
    with QloomBackend(flip(), device="atoms", address=broker.service_address) as own:
        assert len(own.run(wait=True).results) == 1


def test_the_guide(broker):
    page = (ROOT / "docs" / "guides" / "clients.md").read_text()
    script = page.partition("```python\n# with_pulser.py\n")[2].partition("```")[0]
    environment = {**os.environ, "QLOOM_BROKER": broker.service_address}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (done.stderr, done.stdout) == ("", "11 DONE\n")
