"""Circuits and Pulser sequences as payload files of quantum phases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qloom.errors import PayloadError
from qloom.jobfile.files import read_payload
from qloom.runs.runner import run
from qloom.site import Qpu, Site
from tests.unit.jobfile.examples import work_directory, write

BELL3 = """// a Bell pair
OPENQASM 3.0;
include "stdgates.inc";
qubit[2] q;
bit[2] c;
h q[0];
cx q[0], q[1];
c = measure q;
"""
BELL2 = """OPENQASM 2.0;
include "qelib1.inc";
qreg q[2];
creg c[2];
h q[0];
cx q[0],q[1];
measure q -> c;
"""
JOB = """
    name = "bell"
    files = ["bell.qasm"]
    [[phase]]
    kind = "quantum"
    payload = "bell.qasm"
    result = "counts.json"
"""
GATES = Site(qpus=(Qpu(name="gates", technology="superconducting"),))


@pytest.mark.parametrize("text", [BELL3, BELL2], ids=["OpenQASM 3", "OpenQASM 2"])
def test_a_circuit_is_sent_and_its_counts_are_written(tmp_path: Path, text: str) -> None:
    pytest.importorskip("qiskit_aer")
    outcome = run(write(tmp_path, JOB, bell_qasm=text), site=GATES)
    assert outcome.errors == []
    answer = json.loads((work_directory(outcome) / "counts.json").read_text())
    assert set(answer["counts"]) == {"00", "11"}
    assert sum(answer["counts"].values()) == answer["shots"] == 1024
    assert answer["registers"] == {"c": 2}


def test_a_sequence_is_sent_and_the_counts_of_its_atoms_are_written(tmp_path: Path) -> None:
    pulser = pytest.importorskip("pulser")
    sequence = pulser.Sequence(pulser.Register({"a": (0, 0), "b": (20, 0)}), pulser.AnalogDevice)
    sequence.declare_channel("global", "rydberg_global")
    sequence.add(pulser.Pulse.ConstantPulse(200, 6.0, 0.0, 0.0), "global")
    sequence.measure()
    job = JOB.replace("bell.qasm", "pulse.json").replace(
        'result = "counts.json"', 'result = "counts.json"\n    shots = 10'
    )
    site = Site(qpus=(Qpu(name="atoms", technology="neutral-atoms"),))
    path = write(tmp_path, job, pulse_json=sequence.to_abstract_repr())
    outcome = run(path, site=site, world="virtual", parameters={})
    assert outcome.errors == []
    payload = read_payload("pulse.json", sequence.to_abstract_repr().encode(), shots=10, seconds=None, device=None)
    assert (payload.kind, payload.shots) == ("pulser", 10)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\xff\xfe", "p is not text"),
        (b'{"register": [], "operations": []}', "p: the Pulser sequence has no 'version'"),
        (b"[1, 2]", "p is no QUBO: a table is needed"),
    ],
)
def test_what_is_no_payload_is_one_line(content: bytes, complaint: str) -> None:
    with pytest.raises(PayloadError, match=complaint) as raised:
        read_payload("p", content, shots=None, seconds=None, device=None)
    assert "\n" not in str(raised.value)
