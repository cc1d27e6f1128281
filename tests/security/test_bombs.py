"""Small requests that would take all memory or time of whoever reads or runs them.

Each is sent to a real broker over HTTP and says what becomes of it: refused with a message that names the limit,
or taken and failed by a solver whose memory and CPU time are limited. The broker stays the same process.
"""

from __future__ import annotations

import json
import re

import pytest

from qloom.broker.api.reading import SMALL
from tests.security.served import cpu_s, limit, peak_mib, serve
from tests.unit.devices.examples import sequence

CHECK_MIB, SOLVER_MIB, BROKER_MIB = 700, 1500, 400
CONFIG = f"""
limits.check_memory_mib = {CHECK_MIB}
limits.check_cpu_s = 20
limits.check_processes = 1
[[devices]]
kind = "annealing"
name = "anneal"
memory_mib = {SOLVER_MIB}
set_up_s = 0
per_shot_s = 0
[[devices]]
kind = "qaoa"
name = "gates"
memory_mib = {SOLVER_MIB}
set_up_s = 0
per_shot_s = 0
max_operations = 20000
[[devices]]
kind = "qaoa"
name = "hasty"
solver_time_limit_s = 2
set_up_s = 0
per_shot_s = 0
[[devices]]
kind = "pulser"
name = "atoms"
memory_mib = {SOLVER_MIB}
set_up_s = 0
per_shot_s = 0
"""
HEAD = 'OPENQASM 3.0;\ninclude "stdgates.inc";\n'
ONE = HEAD + "qubit[2] q;\nbit[2] c;\n"
END = "\nc = measure q;\n"
DEVICES = {"qubo": "anneal", "openqasm3": "gates", "pulser": "atoms"}


def task(kind, body, **more):
    return {"kind": kind, "body": body, "device": DEVICES[kind], "shots": 1, **more}


def circuit(text, **more):
    return {**task("openqasm3", ONE + text + END), **more}


def raw(kind, body):
    """JSON that `json.dumps` would not write."""
    return f'{{"kind": "{kind}", "device": "{DEVICES[kind]}", "shots": 1, "body": {body}}}'.encode()


def doubling(levels):
    """Each gate is two of the one before."""
    gates = "gate g0 a { x a; }\n" + "".join(f"gate g{i} a {{ g{i - 1} a; g{i - 1} a; }}\n" for i in range(1, levels))
    return gates + f"g{levels - 1} q[0];"


def wave(duration, kind="constant", **more):
    shape = {"kind": kind, "duration": duration, **more}
    pulse = {"op": "pulse", "channel": "g", "protocol": "min-delay", "phase": 0.0, "post_phase_shift": 0.0}
    return {**pulse, "amplitude": {**shape, "value": 1.0}, "detuning": {**shape, "value": 0.0}}


def pulses(*operations, **changes):
    return task("pulser", sequence(operations=operations, **changes))


TOO_MANY_QUBITS = "gates takes up to 20"
REFUSED = {
    # Code that a check does not see
    "carriage return ends a comment": (circuit("// hidden\rqubit[27] z;\n"), TOO_MANY_QUBITS),
    "code between comments": (circuit("/* // */ qubit[27] z; /* */"), TOO_MANY_QUBITS),
    "annotation eats a line": (circuit("inv @x q[0]; /*\nqubit[27] z; // */"), "annotations are not taken"),
    "pragma eats a line": (circuit("pragma /*\nqubit[27] z; // */"), "pragma is not taken"),
    "hash pragma": (circuit("#pragma /*\nqubit[27] z; // */"), "'#' has no place"),
    "quotes around code": (circuit('"; qubit[27] z; "'), "has no place in a circuit"),
    "form feed as a blank": (circuit("qubit\f[27] z;"), "has no place in a circuit"),
    "a calibration block": (circuit("cal { qubit[27] z; }"), "cal is not taken"),
    # Registers
    "computed size": (circuit("qubit[3 * 9] z;"), TOO_MANY_QUBITS),
    "power as a size": (circuit("qubit[2 ** 5] z;"), TOO_MANY_QUBITS),
    "constant as a size": (circuit("const int n = 27; qubit[n] z;"), TOO_MANY_QUBITS),
    "hexadecimal size": (circuit("qubit[0x1b] z;"), TOO_MANY_QUBITS),
    "many small registers": (circuit("".join(f"qubit z{i};" for i in range(27))), TOO_MANY_QUBITS),
    "old register": (circuit("qreg z[27];"), TOO_MANY_QUBITS),
    "physical qubit": (task("openqasm3", HEAD + "bit c; x $26; c = measure $26;"), TOO_MANY_QUBITS),
    "a size nobody knows": (circuit("int n = 27; qubit[n] z;"), "size of register z"),
    "a billion bits": (circuit("bit[1000000000] z;"), "max_bits"),
    "a billion old bits": (circuit("creg z[1000000000];"), "max_bits"),
    "bits in a loop's body": (circuit("for int i in [0:9] { bit[1000000000] z; }"), "max_bits"),
    "a size of a million digits": (circuit(f"bit[{'9' * 1_000_000}] z;"), "max_bits"),
    "an index of a million digits": (circuit(f"x q[{'9' * 1_000_000}];"), "is used, but q has 2"),
    "a physical qubit of a million digits": (circuit(f"x ${'9' * 1_000_000};"), TOO_MANY_QUBITS),
    # Loops and definitions
    "a loop of a billion turns": (circuit("for int i in [0:1000000000] { x q[0]; }"), "max_operations"),
    "a loop downwards": (circuit("for int i in [1000000000:-1:0] { x q[0]; }"), "max_operations"),
    "an empty loop": (circuit("for int i in [0:1000000000] { }"), "max_operations"),
    "loops in loops": (circuit("for int i in [0:999] " * 9 + "{ x q[0]; }"), "max_operations"),
    "a loop nobody can count": (circuit("int n = 5; for int i in [0:n] { x q[0]; }"), "how often a loop runs"),
    "doubling definitions": (circuit(doubling(50)), "max_operations"),
    "thousands of doubling definitions": (circuit(doubling(5000)), "max_operations"),
    "a gate within itself": (circuit("gate g a { g a; } g q[0];"), "there is no gate 'g'"),
    "a billionth power": (circuit("pow(1000000000) @ x q[0];"), "max_operations"),
    "a power of powers": (circuit("pow(1000) @ " * 20 + "x q[0];"), "max_operations"),
    "an infinite power": (circuit("pow(1e999) @ x q[0];"), "max_operations"),
    "a power of a definition": (circuit(doubling(10) + "pow(10 ** 9) @ g9 q[0];"), "max_operations"),
    "a million controls": (circuit("ctrl(1000000) @ x q[0], q[1];"), "controls"),
    "gates by the ten thousand": (circuit("x q[0];" * 21_000), "max_operations"),
    "circuits by the ten thousand": (task("openqasm3", [ONE + END] * 11_000), "max_circuits"),
    # Depth and length
    "a thousand parentheses": (circuit(f"rx({'(' * 1000}1{')' * 1000}) q[0];"), "deep"),
    "a thousand blocks": (circuit("if (c[0] == 1) { " * 1000 + "x q[0];" + "}" * 1000), "deep"),
    "a hundred thousand signs": (circuit(f"const int n = {'-' * 100_000}1;"), "deep"),
    "half a million open comments": (circuit("/*" * 500_000), "ends within a comment"),
    "a million quotes": (circuit('"' * 999_999), "has no place"),
    "a million brackets": (circuit("(" * 1_000_000), "deep"),
    "a million semicolons": (circuit(";" * 1_000_000), "is no statement"),
    "five million characters": (circuit(" " * 5_000_000), "at most 4000000 are taken"),
    # Reaching out
    "a file": (task("openqasm3", (ONE + END).replace("stdgates.inc", "/etc/passwd")), "only stdgates.inc"),
    "an endless file": (task("openqasm3", (ONE + END).replace("stdgates.inc", "/dev/zero")), "only stdgates.inc"),
    "a function from outside": (circuit("extern f(int) -> int;"), "extern is not taken"),
    # Answers
    "an answer of a gigabyte": (circuit("bit[9000] z;", shots=100_000), "max_answer_bytes"),
    "a billion shots": (circuit("x q[0];", shots=10**9), "takes up to 100000"),
    # JSON
    "lists in lists": (raw("qubo", "[" * 100_000 + "]" * 100_000), "recursion"),
    "lists without an end": (raw("qubo", "[" * 5_000_000), "recursion"),
    "tables in tables": (raw("qubo", '{"linear":' * 100_000 + "1" + "}" * 100_000), "recursion"),
    "a number of a million digits": (raw("qubo", f'{{"linear": [[0, {"9" * 1_000_000}]]}}'), "number"),
    "a number that is too large": (raw("qubo", '{"linear": [[0, 1e999]]}'), ""),
    "not a number": (raw("qubo", '{"linear": [[0, NaN]]}'), ""),
    "three million tables": (raw("qubo", "[" + "{}," * 3_000_000 + "{}]"), ""),
    "bytes that are no text": (raw("qubo", '"') + b"\xff\xfe" * 10_000 + b'"}', ""),
    "more variables than fit": (task("qubo", {"linear": [[i, 1.0] for i in range(200_000)]}), "takes up to 5000"),
    "labels as deep as JSON goes": (
        raw("qubo", '{"linear": [[' + "[" * 150 + "]" * 150 + ", 1.0]" + ', [[0], "x"]' * 5000 + "]}"),
        "must be a number",
    ),
    # Pulses
    "two seconds of a pulse": (pulses(wave(2_000_000_000)), "max_duration_ns"),
    "a long delay": (pulses({"op": "delay", "channel": "g", "time": 2_000_000_000}), "max_duration_ns"),
    "many pulses": (pulses(*[wave(1000)] * 1000), "max_duration_ns"),
    "a pulse of pulses": (
        pulses({**wave(1), "amplitude": {"kind": "composite", "waveforms": [{"duration": 10**9}] * 9}}),
        "max_duration_ns",
    ),
    "a pulse by its area": (
        pulses({**wave(1), "amplitude": {"kind": "blackman_max", "max_val": 1e-9, "area": 1e9}}),
        "max_duration_ns",
    ),
    "a duration that is computed": (pulses(wave({"expression": "mul", "lhs": 9, "rhs": 9})), "nanoseconds"),
    "an area that is computed": (
        pulses(
            {**wave(1), "amplitude": {"kind": "blackman_max", "max_val": {"expression": "neg", "lhs": 9}, "area": 9}}
        ),
        "nanoseconds",
    ),
    "a duration below zero": (pulses(wave(-1)), "nanoseconds"),
    "too many atoms": (task("pulser", sequence(13)), "atoms takes up to 12"),
    "a sequence that is no JSON": (task("pulser", "[" * 1_000_000), "is not JSON"),
}
WIDE = "qubit[99999] r{0}; U(0, 0, 0) r{0};"
SHIFTED = "OPENQASM 3.0; qubit[{0}] z; qubit[100000] a; qubit[100000] b; CX a, b; bit c; c = measure a[0];"
SMALL_BUT_WIDE = {  # each is read on the event loop
    "registers by the hundred": ONE + "".join(WIDE.format(number) for number in range(150)) + END,
    "two registers, qubit by qubit": SHIFTED.format(1),
    "pairs that differ in each template": [SHIFTED.format(number * 100_000) for number in range(1, 50)],
    "all of an endless register": HEAD + "qubit[10 ** 18] q; h q; cx q, q; bit c; c = measure q[0];",
}
FAILED = {
    "an endless loop": (circuit("while (c[0] == false) { x q[1]; }", device="hasty"), "CPU time|did not answer"),
    "a thousand signs": (circuit(f"rx({'-' * 3000}1) q[0];"), "cannot be read"),
    "a billion layers": (
        task("qubo", {"linear": [[0, 1.0]]}, device="gates", options={"layers": 10**9}),
        "1 to 100 layers",
    ),
    "more shots than memory": (
        task("qubo", {"linear": [[i, 0.0] for i in range(5000)]}, shots=100_000, options={"num_sweeps": 1}),
        "memory",
    ),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("bombs"), CONFIG) as served:
        yield served
        assert peak_mib(served.pid) < BROKER_MIB, "the broker itself read something large"


@pytest.mark.parametrize("name", REFUSED)
def test_a_bomb_is_refused(broker, name):
    bomb, reason = REFUSED[name]
    answer = broker.post(bomb)
    assert answer.status_code == 422, answer.text[:300]
    assert reason in answer.json()["message"]
    assert len(answer.content) < 1000, "an answer does not repeat what was sent"
    for pid in broker.children("qloom.broker.api.reading"):
        assert limit(pid, "Max address space") == str(CHECK_MIB * 2**20)


@pytest.mark.parametrize("name", SMALL_BUT_WIDE)
def test_a_small_circuit_on_many_qubits_costs_the_broker_nothing(broker, name):
    before_s, before_mib = cpu_s(broker.pid), peak_mib(broker.pid)
    bombs = [task("openqasm3", SMALL_BUT_WIDE[name], device=device) for device in ("gates", "hasty")]
    for bomb in bombs:
        assert len(json.dumps(bomb)) < SMALL
        answer = broker.post(bomb)
        assert answer.status_code == 422, answer.text[:300]
        assert "takes up to 20" in answer.json()["message"]
    assert peak_mib(broker.pid) - before_mib < 20, "what is kept of a circuit grows with its text, not its qubits"
    assert cpu_s(broker.pid) - before_s < 0.3


@pytest.mark.parametrize("name", FAILED)
def test_a_bomb_fails_in_the_solver(broker, name):
    bomb, reason = FAILED[name]
    answer = broker.post(bomb)
    assert answer.status_code == 201, answer.text[:300]
    view = broker.ended(answer.json()["id"])
    assert view["state"] == "failed", view
    assert re.search(reason, view["reason"])


def test_what_is_harmless_is_still_run_and_under_limits(broker):
    for good in (circuit("x q[0];"), task("qubo", {"linear": [[0, -1.0]]})):
        view = broker.ended(broker.post(good).json()["id"])
        assert view["state"] == "done", view
    solvers = broker.children("qloom.devices.solver")
    assert solvers
    for pid in solvers:
        assert limit(pid, "Max address space") == str(SOLVER_MIB * 2**20)
        assert limit(pid, "Max core file size") == "0"


def test_bombs_are_json_of_legal_size():
    for name, (bomb, _) in {**REFUSED, **FAILED}.items():
        size = len(bomb if isinstance(bomb, bytes) else json.dumps(bomb).encode())
        assert size < 10 * 2**20, name
