"""Qiskit code through a real service, and beside Qiskit's own sampler."""

# ruff: noqa: E402  what is imported first decides whether the rest can be

from __future__ import annotations

import math
import os
import subprocess
import sys
import time

import pytest

qiskit = pytest.importorskip("qiskit", reason="NOT TESTED: pip install 'qloom[qaoa]'")
pytest.importorskip("qiskit_aer", reason="NOT TESTED: pip install 'qloom[qaoa]'")
pytest.importorskip("qiskit_qasm3_import", reason="NOT TESTED: pip install 'qloom[qaoa]'")

import numpy as np
from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister
from qiskit.circuit import Clbit, Parameter, Qubit
from qiskit.primitives import BaseSamplerV2, StatevectorSampler
from qiskit.providers import JobStatus

from qloom.answers import Counts
from qloom.broker.client.sync import SyncBrokerClient
from qloom.errors import PayloadError, QuantumFailed
from qloom.interop.qiskit import QloomBackendV2, QloomEstimatorV2, QloomSamplerV2
from qloom.interop.qiskit.bits import check_counts
from tests.broker.processes import ROOT, Service

pytestmark = pytest.mark.slow  # real libraries, a real service

GATES = {"kind": "qaoa", "name": "gates", "set_up_s": 0.0, "per_shot_s": 0.0}
HELMI = {**GATES, "name": "helmi", "profile": "helmi"}
ANNEALER = {"kind": "annealing", "name": "annealer", "set_up_s": 0.0, "per_shot_s": 0.0}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    service = Service(tmp_path_factory.mktemp("qiskit"), "tests.broker.plain", devices=[GATES, ANNEALER, HELMI])
    service.start()
    with SyncBrokerClient(service.address) as client:
        yield client
    assert service.stop() == 0


@pytest.fixture
def sampler(broker):
    return QloomSamplerV2(client=broker, seed=7)


def bell():
    circuit = QuantumCircuit(2)
    circuit.h(0)
    circuit.cx(0, 1)
    circuit.measure_all()
    return circuit


def test_circuits_are_compiled_to_a_device_that_is_named_and_does_not_compile(broker):
    estimator = QloomEstimatorV2("helmi", broker, seed=7)
    circuit = bell().remove_final_measurements(inplace=False)
    assert estimator.run([(circuit, ["ZZ", "XX", "YY"])], shots=50).result()[0].data.evs.tolist() == [1.0, 1.0, -1.0]
    assert QloomBackendV2("helmi", broker).target.num_qubits == 5
    counts = QloomSamplerV2("helmi", broker).run([bell()], shots=20).result()[0].data.meas.get_counts()
    assert set(counts) == {"00", "11"}


def test_a_circuit(sampler):
    assert isinstance(sampler, BaseSamplerV2)
    job = sampler.run([bell()], shots=400)
    counts = job.result()[0].data.meas.get_counts()
    assert set(counts) == {"00", "11"}
    assert sum(counts.values()) == 400
    assert 100 < counts["00"] < 300
    assert job.status() is JobStatus.DONE
    assert job.done()
    assert job.in_final_state()
    assert not job.running()
    assert job.result() is job.result()
    assert sampler.run([bell()]).result()[0].data.meas.num_shots == 1024


def test_parameters_as_an_array_are_one_task(sampler, broker):
    angle = Parameter("angle")
    circuit = QuantumCircuit(1, metadata={"mine": 1})
    circuit.ry(angle, 0)
    circuit.measure_all()
    values = np.array([[0.0, math.pi], [math.pi / 2, 0.0]])
    job = sampler.run([(circuit, values[..., None], 64), (bell(), None, 10)])
    assert len(job.tasks) == 2
    ours, other = job.result()
    assert ours.data.shape == (2, 2)
    assert ours.data.meas.get_counts((0, 0)) == {"0": 64}
    assert ours.data.meas.get_counts((0, 1)) == {"1": 64}
    assert set(ours.data.meas.get_counts((1, 0))) == {"0", "1"}
    assert ours.metadata == {"shots": 64, "circuit_metadata": {"mine": 1}}
    assert other.data.meas.num_shots == 10
    split = QloomSamplerV2(client=broker, circuits_per_task=3).run([(circuit, values[..., None], 8)])
    assert len(split.tasks) == 2
    assert split.result()[0].data.meas.get_counts((0, 1)) == {"1": 8}


def test_registers_are_those_of_qiskits_own_sampler(sampler):
    first, second, loose = ClassicalRegister(2, "first"), ClassicalRegister(3, "second"), Clbit()
    circuits = []
    for more in ([first, second], [second, first], [[loose], first, second]):
        circuit = QuantumCircuit(QuantumRegister(5, "r"), *more)
        circuit.x([0, 3])
        circuit.rzz(0.3, 0, 1)  # not one of OpenQASM's standard gates
        circuit.measure(range(2), first)
        circuit.measure(range(2, 5), second)
        circuits.append(circuit)
    theirs = StatevectorSampler().run(circuits[:2], shots=5).result()
    ours = sampler.run(circuits, shots=5).result()
    for number in range(3):
        for name in ("first", "second"):
            expected = getattr(theirs[min(number, 1)].data, name).get_counts()
            assert (
                getattr(ours[number].data, name).get_counts()
                == expected
                == {{"first": "01", "second": "010"}[name]: 5}
            )


def test_bits_of_one_shot_stay_together(sampler):
    left, right = ClassicalRegister(1, "left"), ClassicalRegister(1, "right")
    circuit = QuantumCircuit(QuantumRegister(2), left, right)
    circuit.h(0)
    circuit.cx(0, 1)
    circuit.measure([0, 1], [left[0], right[0]])
    data = sampler.run([circuit], shots=100).result()[0].data
    assert np.array_equal(data.left.array, data.right.array)
    assert len(set(data.left.get_bitstrings())) == 2


def test_registers_that_share_a_bit(sampler):
    bits = [Clbit(), Clbit(), Clbit()]
    left, right = ClassicalRegister(bits=bits[:2], name="left"), ClassicalRegister(bits=bits[1:2], name="right")
    circuit = QuantumCircuit(QuantumRegister(3), bits, left, right)
    circuit.x(1)
    circuit.measure(range(3), range(3))
    data = sampler.run([circuit], shots=4).result()[0].data
    assert data.left.get_counts() == {"10": 4}
    assert data.right.get_counts() == {"1": 4}


def test_an_answer_without_counts_is_one_line():
    registers = (("c", 2),)
    for answer in ({"form": "vendor"}, Counts({"000": 5}, registers, 5), Counts({"00": 4}, registers, 5)):
        with pytest.raises(QuantumFailed, match="counts"):
            check_counts(answer, 2, 5)


def test_a_condition_and_loose_qubits(sampler):
    register = ClassicalRegister(2, "c")
    circuit = QuantumCircuit([Qubit(), Qubit()], register)
    circuit.x(0)
    circuit.measure(0, 0)
    with circuit.if_test((register[0], 1)):
        circuit.x(1)
    circuit.measure(1, 1)
    assert sampler.run([circuit], shots=20).result()[0].data.c.get_counts() == {"11": 20}


def test_nothing_to_run(sampler):
    assert list(sampler.run([]).result()) == []
    assert sampler.run([]).status() is JobStatus.DONE
    for bits in (0, 1):
        with pytest.raises(PayloadError, match="pub 1: the circuit measures nothing"):
            sampler.run([bell(), QuantumCircuit(1, bits)])


def test_what_is_refused_leaves_nothing_behind(sampler, broker):
    large = QuantumCircuit(25)
    large.measure_all()
    broker.drain("gates")
    try:
        with pytest.raises(PayloadError, match="25 qubits"):
            sampler.run([bell(), large])
        assert broker.queue()["mine"] == []
    finally:
        broker.drain("gates", False)


def test_a_job_that_waits_is_cancelled(sampler, broker):
    broker.drain("gates")
    try:
        job = sampler.run([bell(), bell()])
        assert job.status() is JobStatus.QUEUED
        assert not job.in_final_state()
        assert job.cancel()
        assert job.cancelled()
    finally:
        broker.drain("gates", False)
    with pytest.raises(QuantumFailed, match="cancelled"):
        job.result()
    assert not sampler.run([]).cancel()


def test_its_own_connection_and_a_session(broker, sampler):
    session = broker.open_session("gates")["id"]
    with QloomSamplerV2("gates", session=session, address=_address(broker)) as own:
        job = own.run([bell()], shots=5)
        while not job.in_final_state():
            time.sleep(0.01)
        assert job.result()[0].data.meas.num_shots == 5
    assert broker.status(job.job_id())["session"] == session
    broker.close_session(session)


def _address(broker):
    return broker._client._transport.address


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("with_dimod.py", "{'a': 0, 'b': 1} -2.0\n"),
        ("with_qiskit.py", "['00', '11'] DONE\n"),
        ("with_python.py", "-2.0\n[-2.0, -2.0, -2.0]\n"),
    ],
)
def test_the_guide(broker, name, shown):
    page = (ROOT / "docs" / "guides" / "clients.md").read_text()
    script = page.partition(f"```python\n# {name}\n")[2].partition("```")[0]
    environment = {**os.environ, "QLOOM_BROKER": _address(broker)}
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (done.stderr, done.stdout) == ("", shown)
