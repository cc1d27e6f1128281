"""The check of circuits beside the parser that solvers use: both find the same qubits and bits."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qloom.broker.requests import read_payload, stored_payload
from qloom.errors import PayloadError
from qloom.model import JsonText, Payload
from qloom.payloads.openqasm3 import read_circuit

HEAD = 'OPENQASM 3.0;\ninclude "stdgates.inc";\n'
REAL = {  # text, and the operations that it stands for
    "registers": ("qubit[2] q; bit[2] c; h q; c = measure q;", 4),
    "old registers": ("qreg q[3]; creg c[3]; h q[0]; measure q -> c;", 4),
    "constants": ("const int n = 2 * 2 - 1; qubit[n] q; bit[n] c; c = measure q;", 3),
    "definitions": ("gate g(t) a, b { rx(t) a; cx a, b; } qubit[2] q; bit c; g(pi / 2) q[0], q[1]; c = measure q[0];",
                    3),
    "definitions in others": ("gate f a { x a; x a; } gate g a { f a; f a; } qubit q; bit c; g q; c = measure q;", 5),
    "modifiers": ("qubit[3] q; bit c; ctrl @ x q[0], q[1]; negctrl(2) @ z q[0], q[1], q[2]; c = measure q[1];", 3),
    "powers": ("qubit q; bit c; pow(2) @ x q; pow(1 / 2) @ x q; c = measure q;", 4),
    "a loop": ("qubit[4] q; bit[4] c; for int i in [0:2:3] { x q[i]; } c = measure q;", 7),
    "conditions": ("qubit[2] q; bit[2] c; c[0] = measure q[0]; if (c[0] == 1) { x q[1]; } else { z q[1]; } reset q;",
                   6),
    "switch": ("qubit q; bit[2] c; switch (c) { case 0, 1 { x q; } default { z q; } } c[0] = measure q;", 4),
    "aliases": ("qubit[4] q; bit[4] c; let a = q[0:1] ++ q[3]; h a; c = measure q;", 7),
    "slices and sets": ("qubit[4] q; bit[4] c; h q[1:2]; h q[{0, 3}]; c = measure q;", 8),
    "comments": ("qubit q; // a\nbit c; /* b\n */ c = measure q; // end", 1),
    "barriers and delays": ("qubit[2] q; bit[2] c; barrier q; delay[100ns] q[0]; c = measure q;", 4),
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_what_is_counted_is_what_a_solver_compiles(name):
    qasm3 = pytest.importorskip("qiskit.qasm3")
    text, operations = HEAD + REAL[name][0], REAL[name][1]
    found = read_circuit(text)
    assert found.operations == operations
    try:
        circuit = qasm3.loads(text)
    except Exception:
        return  # the solver does not take all of the language
    assert (found.size, found.bits) == (circuit.num_qubits, circuit.num_clbits)
    assert found.operations >= circuit.size()


pieces = st.sampled_from(
    ["//", "/*", "*/", "\r", "\n", "\r\n", '"', "'", "@", "#", ";", "{", "}", " ", "\t", "\f", "\u2028", "\xa0",
     "pragma ", "qubit[3] z;", "bit[3] z;", "qreg z[3];", "qubit z;", "x q[0];", "inv @x", "let a = q;", "box", "[2]",
     "0x3", "z"]
)  # fmt: skip


@settings(max_examples=int(os.environ.get("QLOOM_EXAMPLES", "300")), deadline=None)
@given(st.lists(pieces, min_size=1, max_size=8), st.lists(pieces, max_size=4))
def test_no_text_has_more_qubits_for_the_solver_than_for_the_check(middle, end):
    parser = pytest.importorskip("openqasm3")
    text = f"{HEAD}qubit[2] q;\nbit[2] c;\n{''.join(middle)}\nc = measure q;\n{''.join(end)}"
    try:
        found = read_circuit(text)
    except PayloadError:
        return
    try:
        program = parser.parse(text)
    except Exception:
        return  # neither does the solver take it
    sizes = {"QubitDeclaration": 0, "BitType": 0}
    for statement in program.statements:
        if type(statement).__name__ == "QubitDeclaration":
            sizes["QubitDeclaration"] += statement.size.value if statement.size is not None else 1
        elif type(getattr(statement, "type", None)).__name__ == "BitType":
            sizes["BitType"] += statement.type.size.value if statement.type.size is not None else 1
    assert (sizes["QubitDeclaration"], sizes["BitType"]) == (found.size, found.bits)


def test_a_payload_is_stored_with_its_body_unread_and_old_ones_are_read():
    payload = Payload("qubo", {"linear": [["a\n", 1.0]]}, 7, options={"seed": 1})
    again = read_payload(stored_payload(payload))
    assert isinstance(again.body, JsonText)
    assert replace(again, body=again.value) == payload
    assert again.facts == payload.facts
    old = {"kind": "qubo", "body": {"linear": [[0, 1.0]]}, "shots": 3, "seconds": None, "options": {}}
    assert read_payload(json.dumps(old)) == Payload(**old)
