"""Circuits on their way to a device: exact values, keys that depend on nothing else, answers as Qiskit has them."""

from __future__ import annotations

import json
import math

import pytest

from qloom.answers import AtomCounts, Counts, Sample, Samples
from qloom.errors import PayloadError
from qloom.journal.content import payload_key
from qloom.journal.results import decode_plain, encode_plain
from qloom.model import Payload
from qloom.payloads.adapt import ADAPTERS, delay, to_payload
from qloom.payloads.wire import facts_of

qiskit = pytest.importorskip("qiskit", reason="NOT RUN: qiskit is not installed (pip install 'qloom[qiskit]')")
pytest.importorskip("qiskit_aer", reason="NOT RUN: qiskit-aer is not installed (pip install 'qloom[qiskit]')")
from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister  # noqa: E402
from qiskit.circuit import Parameter  # noqa: E402
from qiskit.primitives import StatevectorSampler  # noqa: E402

from qloom.worlds.answers import solve  # noqa: E402

HEAD = 'OPENQASM 3.0;\ninclude "stdgates.inc";\n'


def ansatz(first, second, *, expression=False):
    one, other = Parameter(first), Parameter(second)
    circuit = QuantumCircuit(2)
    circuit.rx(2 * one + 1 if expression else one, 0)
    circuit.ry(other, 1)
    circuit.rz(math.pi / 2 + 5e-10, 0)
    circuit.cx(0, 1)
    circuit.measure_all()
    return circuit, one, other


def answer(problem, shots=1000, seed=1):
    return solve(to_payload(problem, shots=shots), seed)


def test_values_reach_the_device_as_exact_doubles():
    circuit = QuantumCircuit(1)
    for angle in (math.pi / 2 + 5e-10, 1e-10, -0.1, 1 / 3):
        circuit.rx(angle, 0)
    circuit.measure_all()
    body = json.loads(to_payload(circuit).text)
    assert body["rows"] == [[math.pi / 2 + 5e-10, 1e-10, -0.1, 1 / 3]]
    literal = to_payload((ansatz("a", "b")[0], [0.1, 0.2])).body
    assert repr(math.pi / 2 + 5e-10) in literal["template"], "numbers of a parametrised circuit stand in its text"


def test_a_key_depends_on_values_and_not_on_names_or_processes():
    one, a, b = ansatz("zeta", "alpha", expression=True)
    other, c, d = ansatz("p0", "p1", expression=True)
    key = payload_key(to_payload((one, {a: 0.25, b: 0.5})))
    assert key == payload_key(to_payload((other, {c: 0.25, d: 0.5})))
    assert key != payload_key(to_payload((other, {c: 0.25, d: 0.5 + 1e-15})))
    assert to_payload((one, {a: 0.25, b: 0.5})).body["rows"] == [[1.5, 0.5]], "an expression is computed here"


def test_bound_circuits_of_one_ansatz_share_a_template():
    circuit, *_ = ansatz("a", "b")
    bound = [circuit.assign_parameters([x, x / 3]) for x in (0.1, 0.2, 0.3)]
    payload = to_payload(bound)
    assert len(payload.body) == 1
    assert [row[:2] for row in payload.body[0]["rows"]] == [[x, x / 3] for x in (0.1, 0.2, 0.3)]
    facts = facts_of(payload)
    assert (facts.circuits, facts.size, facts.used) == (3, 2, 2)


def test_equal_circuits_of_a_task_draw_independently():
    circuit = QuantumCircuit(1)
    circuit.h(0)
    circuit.measure_all()
    ones = [one.counts["1"] for one in answer([circuit] * 8, shots=100)]
    assert len(set(ones)) > 2
    assert ones == [one.counts["1"] for one in answer([circuit] * 8, shots=100)], "the same seed, the same counts"


def test_registers_bit_order_and_measurements_within_a_circuit_are_those_of_qiskit():
    circuit = QuantumCircuit(QuantumRegister(3), ClassicalRegister(2, "c"), ClassicalRegister(1, "d"))
    circuit.x(0)
    circuit.measure(0, 1)
    circuit.h(1)
    circuit.measure(1, 2)
    with circuit.if_test((circuit.cregs[1], 1)):
        circuit.x(2)
    circuit.measure(2, 0)
    found = answer(circuit)
    assert set(found.counts) == {"0 10", "1 11"}
    assert found.registers == (("c", 2), ("d", 1))
    assert set(found.of("c")) == {"10", "11"}
    assert found.of("d")["1"] == found.counts["1 11"]
    data = found.to_qiskit().data
    assert data.c.get_counts() == found.of("c")
    ones = data.d.array[:, 0]
    assert ((data.c.array[:, 0] & 1) == ones).all(), "the bits of one shot stay together"
    assert 300 < data.d.slice_shots(range(500)).get_counts()["1"] * 2 < 700, "half of the shots are a fair sample"


def test_counts_agree_with_the_statevector_sampler():
    circuit, *_ = ansatz("a", "b")
    values = [[0.3, 1.1], [2.0, -0.4]]
    expected = StatevectorSampler(seed=1).run([(circuit, values)], shots=20_000).result()[0].data.meas
    for index, found in enumerate(answer((circuit, values), shots=20_000)):
        for outcome, number in expected.get_counts(index).items():
            assert abs(found.counts.get(outcome, 0) - number) < 6 * math.sqrt(number + 1) + 6


def test_openqasm_2_is_converted_and_openqasm_3_takes_values():
    old = 'OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[1];\ncreg c[1];\nu3(pi,0,0) q[0];\nmeasure q -> c;'
    assert answer(old, shots=10).counts == {"1": 10}
    text = HEAD + "input float[64] turn;\nqubit q; bit c; rx(turn) q; c = measure q;"
    assert answer((text, [math.pi]), shots=10).counts == {"1": 10}
    assert [one.counts for one in answer((text, [[0.0], [math.pi]]), shots=10)] == [{"0": 10}, {"1": 10}]


def test_gates_that_openqasm_does_not_know_are_written_out():
    circuit = QuantumCircuit(2)
    circuit.unitary([[0, 1], [1, 0]], [0])
    circuit.append(QuantumCircuit(1, name="mine").to_gate(), [1])
    circuit.mcp(0.3, [0], 1)
    circuit.measure_all()
    assert answer(circuit, shots=10).counts == {"01": 10}


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (lambda: QuantumCircuit(2), "the circuit measures nothing"),
        (lambda: ansatz("theta", "phi")[0], "the circuit has unbound parameters: phi, theta"),
        (lambda: (ansatz("theta", "phi")[0], [1.0]), "the circuit has 2 parameters, and values of shape (1,)"),
        (lambda: (ansatz("theta", "phi")[0], {"theta": 1.0, "x": 2.0}), "the circuit has no parameter x"),
        (lambda: (ansatz("theta", "phi")[0], [1.0, math.nan]), "must be finite"),
        (lambda: HEAD + "qubit q; bit c;\nfoo q;\nc = measure q;", "there is no gate 'foo' (line 4)"),
        (
            lambda: HEAD + "input float[64] turn;\nqubit q; bit c; rx(turn) q; c = measure q;",
            "unbound parameters: turn",
        ),
        (lambda: "OPENQASM 2.0;\nqreg q[1];\nfoo q[0];", "'foo' is not defined in this scope (line 3)"),
        (lambda: [], "the list of circuits is empty"),
        (lambda: [{("a", "a"): 1.0}, {("a", "a"): 1.0}], "only circuits can share a task"),
        (lambda: object(), "a quantum call takes"),
    ],
)
def test_what_cannot_be_sent_is_refused_in_one_line(problem, message):
    with pytest.raises(PayloadError) as refused:
        facts_of(to_payload(problem()))
    assert message in refused.value.message
    assert "\n" not in str(refused.value)


def test_shots_are_obeyed_or_refused():
    assert to_payload(Payload("openqasm3", HEAD), shots=7).shots == 7
    for payload in (delay(1.0), Payload("qrmi", {}), Payload("command", ["true"])):
        with pytest.raises(PayloadError, match="shots"):
            to_payload(payload, shots=7)


def test_another_package_brings_an_adapter():
    class Problem:
        __module__ = "somebody.problems"

    ADAPTERS["somebody"] = lambda problem, values: delay(1.0, values)
    try:
        assert to_payload(Problem()).kind == "delay"
        assert to_payload((Problem(), 5)).body == 5
    finally:
        del ADAPTERS["somebody"]


@pytest.mark.parametrize(
    "value",
    [
        Samples({"a": 1, 3: 0}, -1.0, ("10", "00"), (-1.0, 0.0), (3, 1), 4),
        Counts({"0 10": 3}, (("c", 2), ("d", 1)), 3),
        [Counts({}, (), 1), Counts({"0": 1}, (("c", 1),), 1)],
        AtomCounts({"01": 2}, ("q0", "q1"), 2),
    ],
)
def test_answers_lie_in_the_journal_as_json(value):
    assert decode_plain(json.loads(json.dumps(encode_plain(value)))) == value


def test_an_answer_reads_as_its_best_sample():
    found = answer({("a", "a"): -1.0, ("b", "b"): 1.0}, shots=20)
    assert found == Sample({"a": 1, "b": 0}, -1.0)
    assert isinstance(found, Sample)
    assert [sample.energy for sample in found.samples] == sorted(found.energies)
    spins = answer(({"a": 1.0}, {("a", "b"): 1.0}), shots=20).to_dimod()
    assert dict(spins.first.sample) == {"a": -1, "b": 1}
    assert spins.first.energy == -2.0


async def bell_and_qubo(job):
    circuit = QuantumCircuit(2)
    circuit.h(0)
    circuit.cx(0, 1)
    circuit.measure_all()
    several = await job.quantum([circuit] * 3, shots=100)
    return several, await job.quantum({("a", "a"): -1.0}, shots=5)


@pytest.mark.slow
def test_answers_are_equal_in_virtual_time_and_in_processes():
    import qloom

    site = qloom.Site(nodes=1, qpus=(qloom.Qpu("gates", "superconducting"),))
    outcomes = [qloom.run(bell_and_qubo, world=world, site=site, in_memory=True) for world in ("virtual", "local")]
    assert [outcome.errors for outcome in outcomes] == [[], []]
    assert outcomes[0].results == outcomes[1].results
