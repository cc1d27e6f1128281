"""Targets: what machines are made of, what they refuse for it, and Qiskit's view of it."""

from __future__ import annotations

import pytest

import qloom
from qloom.device import DeviceTarget
from qloom.devices.check import check_payload
from qloom.devices.factory import make_device
from qloom.devices.profiles import chimera, couplings_of, load_profile, square_lattice
from qloom.devices.schema import description_from
from qloom.errors import InputError, PayloadError
from qloom.model import Payload
from qloom.site import parse_qpu
from tests.unit.devices.examples import sequence

HEAD = 'OPENQASM 3.0; include "stdgates.inc"; gate r(a, b) q { U(a, b, -b) q; } qubit[5] q; bit[5] c; '


def circuit(gates, kind="openqasm3"):
    return Payload(kind, f"{HEAD}{gates} c = measure q;")


def test_machines_have_the_graphs_that_are_published():
    degrees = {}
    for name, qubits, couplings in (("leonardo-iqm", 54, 90), ("iqm-20", 20, 30), ("helmi", 5, 4)):
        target = load_profile(name).target
        pairs = couplings_of(target)
        assert (target.qubits, len(pairs), len(set(pairs))) == (qubits, couplings, couplings)
        assert {qubit for pair in pairs for qubit in pair} == set(range(qubits)), "every qubit is coupled"
        degrees[name] = max(sum(qubit in pair for pair in pairs) for qubit in range(qubits))
    assert degrees == {"leonardo-iqm": 4, "iqm-20": 4, "helmi": 4}
    assert len(couplings_of(load_profile("chimera").target)) == 6016
    assert load_profile("leonardo-pasqal").target.qubits == 140


def test_graphs_from_a_few_numbers():
    assert square_lattice([(0, 2), (0, 2)]) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert sorted(chimera(1, 1, 2)) == [(0, 2), (0, 3), (1, 2), (1, 3)]
    with pytest.raises(InputError, match="unknown graph"):
        couplings_of(DeviceTarget(4, graph="circle 4"))


@pytest.mark.parametrize(
    ("gates", "message"),
    [
        ("h q[0];", "helmi has no gate 'h': it has r, cz"),
        ("cz q[0], q[1];", "qubits 0 and 1 are not coupled on helmi"),
        ("ctrl @ r(1, 2) q[2], q[1];", "helmi has no gate 'modified r'"),
        ("for int i in [0:3] { cz q[2], q[i]; }", "a gate whose qubits helmi cannot know beforehand"),
    ],
)
def test_a_machine_that_does_not_compile_refuses_what_does_not_fit(gates, message):
    machine = load_profile("helmi")
    check_payload(machine, circuit("r(1, 2) q; cz q[2], q[4]; cz q[0], q[2]; reset q[1]; barrier q;"))
    with pytest.raises(PayloadError, match="target") as refused:
        check_payload(machine, circuit(gates))
    assert message in refused.value.message
    check_payload(make_device({"kind": "aer", "profile": "helmi", "compiles": True}).description, circuit(gates))


def test_an_emulator_holds_fewer_qubits_than_the_machine_has():
    device = make_device({"kind": "aer", "profile": "leonardo-iqm"}).description
    large = 'OPENQASM 3.0; include "stdgates.inc"; qubit[54] q; bit[54] c; {} c[0] = measure q[53];'
    check_payload(device, Payload("openqasm3", large.format("cz q[52], q[53];")))
    with pytest.raises(PayloadError, match="54 qubits in use, leonardo-iqm takes up to 20"):
        check_payload(device, Payload("openqasm3", large.format("reset q;")))
    with pytest.raises(PayloadError, match="has 55 qubits"):
        check_payload(device, Payload("openqasm3", large.format("").replace("[54] q", "[55] q")))


def test_a_sequence_needs_a_channel_of_the_device():
    machine = load_profile("leonardo-pasqal")
    check_payload(machine, Payload("pulser", sequence(2)))
    other = sequence(2)
    other["channels"] = {"g": "mw_global"}
    with pytest.raises(PayloadError, match="uses channel mw_global, and leonardo-pasqal has rydberg_global"):
        check_payload(machine, Payload("pulser", other))


def test_a_description_survives_json_and_a_qpu_takes_a_profile():
    import dataclasses
    import json

    for name in ("leonardo-iqm", "leonardo-pasqal", "chimera", "annealer"):
        machine = load_profile(name)
        assert description_from(json.loads(json.dumps(dataclasses.asdict(machine)))) == machine
    assert parse_qpu("gates:iqm-20") == {"name": "gates", "profile": "iqm-20", "offline": False}
    assert qloom.Qpu("gates", profile="iqm-20").technology == "superconducting"


def test_qiskit_objects_of_a_job_compile_to_the_target():
    pytest.importorskip("qiskit_aer", reason="NOT RUN: qiskit-aer is not installed (pip install 'qloom[qiskit]')")
    from qiskit import QuantumCircuit

    bell = QuantumCircuit(3)
    bell.h(0)
    bell.cx(0, 1)
    bell.cx(0, 2)
    bell.measure_all()

    def program(job):
        counts = job.qiskit_sampler().run([bell], shots=50).result()[0].data.meas.get_counts()
        target = job.qiskit_backend().target
        return sorted(counts), target.num_qubits, sorted(target.operation_names)

    async def plain(job):
        await job.quantum(bell)

    site = qloom.Site(qpus=(qloom.Qpu("gates", profile="leonardo-iqm"),))
    outcome = qloom.run(program, world="virtual", site=site, in_memory=True)
    assert outcome.results == [(["000", "111"], 54, ["cz", "measure", "r", "reset"])]
    (error,) = qloom.run(plain, world="virtual", site=site, in_memory=True).errors
    assert "gates has no gate 'h'" in error.message, "a circuit is never changed on the way"
