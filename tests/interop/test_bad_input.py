"""Bad quantum input from the command line: one clear line with the line of the program, exit code 2, nothing left."""

from __future__ import annotations

import pytest

pytest.importorskip("qiskit_aer", reason="NOT TESTED: pip install 'qloom[qiskit]'")
pytest.importorskip("pulser", reason="NOT TESTED: pip install 'qloom[pulser]'")

from tests.unit.cli.conftest import cli  # noqa: F401

PROGRAM = '''
import pulser
from qiskit import QuantumCircuit
from qiskit.circuit import Parameter

QASM = """OPENQASM 3.0;
include "stdgates.inc";
qubit[1] q;
bit[1] c;
{statement}
c = measure q;
"""

def circuit(qubits=1, measured=True):
    made = QuantumCircuit(qubits)
    made.h(range(qubits))
    if measured:
        made.measure_all()
    return made

def no_measurement(job):
    return job.quantum(circuit(measured=False))

def unbound(job):
    made = QuantumCircuit(1)
    made.rx(Parameter("theta"), 0)
    made.measure_all()
    return job.quantum(made)

def too_large(job):
    return job.quantum(circuit(200))

async def too_large_for_all(job):
    return await job.quantum(circuit(200))

def observable(job):
    return job.qiskit_estimator().run([(circuit(2, False), "ZZZ")]).result()

def precision(job):
    return job.qiskit_estimator().run([(circuit(2, False), "ZZ")], precision=0).result()

def channel(job):
    sequence = pulser.Sequence(pulser.Register.rectangle(1, 2, spacing=6, prefix="q"), pulser.MockDevice)
    sequence.declare_channel("local", "raman_local", initial_target="q0")
    sequence.add(pulser.Pulse.ConstantPulse(200, 2.0, 0, 0), "local")
    sequence.measure("digital")
    return job.quantum(sequence)

def unknown_gate(job):
    return job.quantum(QASM.format(statement="foo q[0];"))

def reserved(job):
    return job.quantum(QASM.format(statement="float[64] angle;"))

def old_syntax(job):
    return job.quantum('OPENQASM 2.0;\\ninclude "qelib1.inc";\\nqreg q[1];\\ncreg c[1];\\nh q[0]\\nmeasure q -> c;')

def no_shots(job):
    return job.qiskit_backend().run(circuit(), shots=0)

def awaits(job):
    async def inner():
        return await job.quantum(circuit())
    return inner()
'''
GATES = ("--qpu", "gates:superconducting")


@pytest.fixture(autouse=True)
def _program(tmp_path, monkeypatch, qloom_home):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text(PROGRAM)


@pytest.mark.parametrize(
    ("name", "qpus", "message"),
    [
        ("no_measurement", GATES, "the circuit measures nothing (bad.py, line 22)"),
        ("unbound", GATES, "the circuit has unbound parameters: theta (bad.py, line 28)"),
        ("too_large", GATES, "the circuit has 200 qubits in use, gates takes up to 20 (bad.py, line 31)"),
        ("too_large_for_all", (*GATES, "--qpu", "other:helmi"), "other takes up to 5"),
        ("observable", GATES, "pub 0: The number of qubits of the circuit (2) does not match"),
        ("precision", GATES, "precision must be greater than 0, not 0 (bad.py, line 40)"),
        ("no_shots", GATES, "shots must be a whole number of at least 1, not 0"),
        ("channel", ("--qpu", "atoms:leonardo-pasqal"), "the sequence uses channel raman_local, and atoms has"),
        ("unknown_gate", GATES, "there is no gate 'foo' (line 5)"),
        ("reserved", GATES, "'angle' is a word of OpenQASM and cannot be a name (line 5)"),
        ("old_syntax", GATES, "but instead saw measure (line 6)"),
        ("awaits", GATES, "awaits is synchronous but returned a coroutine"),
    ],
)
def test_bad_input_is_one_line(cli, qloom_home, name, qpus, message):  # noqa: F811
    said = cli("run", f"bad.py:{name}", "--world", "virtual", *qpus)
    assert (said.code, said.out) == (2, "")
    assert len(said.err.splitlines()) == 1, said.err
    assert message in said.err
    assert not list(qloom_home.glob("runs/*/journal.jsonl"))
