"""What a device takes and what it refuses, with the reason."""

from __future__ import annotations

import json
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qloom.device import Description
from qloom.devices.check import check_payload
from qloom.errors import PayloadError
from qloom.model import Payload
from qloom.payloads.openqasm3 import read_circuit
from tests.unit.devices.examples import BELL, QUBO, sequence

SMALL = Description("small", "superconducting", 2, ("qubo", "openqasm3", "pulser", "delay"), local_addressing=False)
THREE = {"linear": [[i, 1.0] for i in range(3)]}
REFUSED = [
    (Payload("pickle", b""), "takes qubo, openqasm3, pulser, delay, not 'pickle'"),
    (Payload("qubo", THREE), "the QUBO has 3 variables, small takes up to 2"),
    (Payload("qubo", QUBO), "different linear biases, and small has no local addressing"),
    (Payload("qubo", {"linear": [["a", float("nan")]]}), 'bias of "a" must be finite'),
    (Payload("qubo", {"linear": [["a", 10**400]]}), "finite"),
    (Payload("qubo", {"linear": [["a", True]]}), "must be a number, not bool"),
    (Payload("qubo", {"linear": [["a", 1.0], ["a", 2.0]]}), "two linear biases"),
    (Payload("qubo", {"linear": [["a", 1.0]], "quadratic": [["a", "b", 1.0]]}), '"b" has no linear bias'),
    (Payload("qubo", {"linear": [["a", 1.0]], "quadratic": [["a", "a", 1.0]]}), "needs two variables"),
    (Payload("qubo", {"linear": [["a", 1.0]], "extra": 1}), "no part 'extra'"),
    (Payload("qubo", {}), "at least one variable"),
    (Payload("qubo", [1]), "cannot be read from a list"),
    (Payload("qubo", QUBO, shots=0), "shots must be"),
    (Payload("qubo", QUBO, shots=10**9), "1000000000 shots, small takes up to 100000"),
    (Payload("qubo", QUBO, seconds=float("inf")), "cannot take inf seconds"),
    (Payload("openqasm3", BELL.replace("[2]", "[3]")), "the circuit has 3 qubits, small takes up to 2"),
    (Payload("openqasm3", "OPENQASM 2.0; qreg q[2];"), "OpenQASM 2, not 3"),
    (Payload("openqasm3", "h q;"), "does not begin with OPENQASM 3.0;"),
    (
        Payload("openqasm3", BELL.replace("stdgates.inc", "/etc/passwd")),
        "only stdgates.inc can be included (line 2)",
    ),
    (Payload("openqasm3", BELL.replace("h q[0]", "hh q[0]")), "no gate 'hh' (line 5)"),
    (Payload("openqasm3", BELL.replace("h q[0]", "h q[7]")), "q[7] is used, but q has 2 (line 5)"),
    (Payload("openqasm3", BELL.replace("h q[0]", "h q[0")), "has a ["),
    (Payload("openqasm3", BELL.replace("h q[0];", "h q[0]);")), "has a ) too many"),
    (Payload("openqasm3", BELL.replace("c = measure q;", "")), "measures nothing"),
    (Payload("openqasm3", BELL + "extern f(int) -> int;"), "extern is not taken"),
    (Payload("openqasm3", BELL + "x q[0]"), "ends within a statement"),
    (Payload("openqasm3", BELL + "/* x"), "ends within a comment"),
    (Payload("openqasm3", "OPENQASM 3.0; bit c;"), "declares no qubits"),
    (Payload("openqasm3", "OPENQASM 3.0; qubit[n] q;"), "size of register q"),
    (Payload("openqasm3", 5), "a circuit cannot be read from a int"),
    (Payload("openqasm3", []), "the payload has no circuit"),
    (Payload("pulser", "{"), "is not JSON"),
    (Payload("pulser", {"version": "1"}), "has no 'name'"),
    (Payload("pulser", sequence(3)), "the Pulser sequence has 3 atoms, small takes up to 2"),
    (Payload("pulser", sequence(version="7")), "version '7', not 1"),
    (Payload("pulser", sequence(register=[])), "has no atoms"),
    (Payload("pulser", sequence(register=[{"name": "a", "x": float("nan"), "y": 0}])), "finite number"),
    (Payload("pulser", sequence(register=[{"name": "a", "x": 1, "y": 0}] * 2)), "two atoms of one name"),
    (Payload("pulser", sequence(variables={"t": {}})), "open variables: t"),
    (Payload("pulser", sequence(measurement=None)), "measures nothing"),
    (Payload("pulser", sequence(channel="rydberg_local")), "(channel rydberg_local), and small has no local"),
    (Payload("pulser", sequence(operations=[{"op": "add_dmm_detuning"}])), "(operation add_dmm_detuning)"),
    (Payload("pulser", sequence(operations=[7])), "operation without 'op'"),
]


@pytest.mark.parametrize(("payload", "reason"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_a_device_cannot_take_is_refused_with_the_reason(payload, reason):
    with pytest.raises(PayloadError) as refused:
        check_payload(SMALL, payload)
    assert reason in refused.value.message
    assert "\n" not in str(refused.value)


def test_what_a_device_can_take_is_taken():
    check_payload(SMALL, Payload("qubo", {"linear": [[[1, 2], 1.0], [None, 1.0]], "quadratic": [[None, [1, 2], 2]]}))
    for text in (
        BELL,
        "OPENQASM 3;qubit a;qubit b;bit c;ctrl @ x a, b;c = measure a;",
        "OPENQASM 3.0; gate f(t) a { rx(t) a; } const int[32] n = 2; qubit[n] q; f(pi/2) q[-1]; bit[n] c = "
        "measure q;",
        "OPENQASM 3.0;\nqreg q[2]; creg c[2]; for int i in [0:1] { U(0, 0, 0) q[i]; } if (c[0] == 1) reset q;\n"
        "measure q -> c; // the end",
        "OPENQASM 3.0; bit[2] c; rz(0.1) $0; c[0] = measure $1;",
    ):
        check_payload(SMALL, Payload("openqasm3", text))
    check_payload(SMALL, Payload("pulser", json.dumps(sequence())))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
named = st.dictionaries(
    st.sampled_from([*QUBO, *sequence(), "type", "variable_labels", "linear_biases"]), json_values
)
broken = st.builds(
    lambda a, b, text: BELL[:a] + text + BELL[b:], *[st.integers(0, len(BELL))] * 2, st.text(max_size=6)
)


@settings(max_examples=int(os.environ.get("QLOOM_EXAMPLES", "400")), deadline=None)
@given(st.sampled_from(["qubo", "openqasm3", "pulser"]), json_values | named | broken)
def test_fuzzed_payloads_are_taken_or_refused_and_nothing_else(kind, body):
    try:
        check_payload(SMALL, Payload(kind, body))
    except PayloadError:
        pass


@pytest.mark.slow
def test_reading_takes_linear_time():
    nasty = [
        *("/*" * 500_000, "ctrl @ " * 200_000, "pow(" * 300_000, "(" * 500_000, '"' * 999_999, "x" * 1_000_000),
        *("\n" * 1_000_000, "ctrl" + " " * 1_000_000, "x q;" * 200_000, "1" * 1_000_000, "q[" + "1" * 999_999 + "]"),
    ]
    began = time.process_time()
    for text in nasty:
        with pytest.raises(PayloadError):
            read_circuit("OPENQASM 3.0;" + text)
    assert time.process_time() - began < 300, "quadratic time would be hours"
