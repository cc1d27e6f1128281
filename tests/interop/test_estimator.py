"""The estimator: its mathematics, against exact values; how it broadcasts, groups, compiles and refuses."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("qiskit", reason="NOT TESTED: pip install 'qloom[qiskit]'")
pytest.importorskip("qiskit_qasm3_import", reason="NOT TESTED: pip install 'qloom[qiskit]'")

import numpy as np
from qiskit import QuantumCircuit, qasm3
from qiskit.circuit import ClassicalRegister, Parameter, QuantumRegister
from qiskit.circuit.library import efficient_su2
from qiskit.circuit.random import random_circuit
from qiskit.primitives import BaseEstimatorV2, StatevectorEstimator
from qiskit.quantum_info import Pauli, SparseObservable, SparsePauliOp, random_pauli_list
from qiskit.transpiler import CouplingMap, Target

from qloom.errors import InputError, PayloadError
from qloom.interop.qiskit import QloomEstimatorV2
from qloom.interop.qiskit.compiling import fits
from qloom.interop.qiskit.expectation import group_words
from tests.interop.transports import StatevectorTransport

LINE = Target.from_configuration(
    ["rz", "sx", "x", "cz", "measure"], num_qubits=5, coupling_map=CouplingMap.from_line(5)
)


def bell():
    circuit = QuantumCircuit(2)
    circuit.h(0)
    circuit.cx(0, 1)
    return circuit


def estimator(**options):
    target = options.pop("target", None)
    transport = StatevectorTransport(options.pop("seed", 1), target)
    return QloomEstimatorV2(transport=transport, **options), transport


def exact(*pub):
    return StatevectorEstimator().run([pub]).result()[0].data.evs


def test_z_scores_of_random_circuits_and_observables():
    """The mean of 200 has a standard error of 0.07; the figure for 1,000 is made by `benchmarks.estimator`."""
    ours, _ = estimator(default_shots=300)
    random = np.random.default_rng(7)
    scores = []
    for seed in range(200):
        qubits, terms = int(random.integers(1, 4)), int(random.integers(1, 6))
        circuit = random_circuit(qubits, 2, max_operands=2, seed=seed)
        words = random_pauli_list(qubits, terms, seed=seed, phase=False)
        observable = SparsePauliOp(words, random.normal(size=terms))
        data = ours.run([(circuit, observable)]).result()[0].data
        expected = exact(circuit, observable)
        if data.stds > 0.02 * np.abs(observable.coeffs).sum():
            scores.append((data.evs - expected) / data.stds)
        else:  # near an eigenstate the spread of the shots says little
            assert data.evs == pytest.approx(expected, abs=0.1 * np.abs(observable.coeffs).sum())
    assert len(scores) > 120
    assert abs(np.mean(scores)) < 0.2
    assert 0.85 < np.std(scores) < 1.15


@pytest.mark.parametrize(
    ("observables", "values"),
    [
        ("ZZ", [0.3, 0.4]),
        (["ZZ", "XI", "YX"], [0.3, 0.4]),
        ([["ZZ"], ["XI"], [{"YX": 2.0, "ZI": -1.0}]], np.linspace(0, 1, 8).reshape(4, 2)),
        (["ZZ", Pauli("-XI")], np.linspace(0, 1, 4).reshape(2, 2)),
        ([[["ZZ", "IX"]]], np.linspace(0, 1, 12).reshape(3, 2, 2)),
        ([], [0.3, 0.4]),
        ("ZZ", np.empty((0, 2))),
    ],
)
def test_arrays_broadcast_as_qiskits_do(observables, values):
    circuit = QuantumCircuit(2)
    circuit.ry(Parameter("a"), 0)
    circuit.cx(0, 1)
    circuit.rx(Parameter("b"), 1)
    ours, _ = estimator(default_precision=0.05)
    data = ours.run([(circuit, observables, values)]).result()[0].data
    expected = exact(circuit, observables, values)
    assert (type(data.evs), data.shape) == (type(expected), expected.shape)
    assert data.evs.shape == data.stds.shape == expected.shape
    assert np.all(np.abs(data.evs - expected) <= 5 * data.stds + 0.02)


def test_words_that_commute_qubit_by_qubit_are_measured_together_in_one_task():
    ansatz = efficient_su2(4, reps=1)
    fields = SparsePauliOp.from_sparse_list([("X", [q], 0.5) for q in range(4)], 4)
    chain = SparsePauliOp.from_sparse_list([("ZZ", [q, q + 1], 1.0) for q in range(3)], 4)
    ours, transport = estimator(default_shots=50)
    values = np.linspace(0, 1, 20 * ansatz.num_parameters).reshape(20, -1)
    result = ours.run([(ansatz, chain + fields, values)]).result()[0]
    ((entries, shots),) = transport.tasks
    assert shots == result.metadata["shots"] == 50
    assert [len(entry.rows) for entry in entries] == [20, 20]  # all Z together, all X together
    assert sorted(members for _, members in group_words(("ZZ", "IZ", "XI", "XY", "ZI", "II"))) == [
        ["XY", "XI"],
        ["ZZ", "IZ", "ZI"],
    ]


def test_standard_errors_have_the_covariances_in_them():
    ours, _ = estimator(default_shots=1000)
    data = ours.run([(bell(), ["ZI", {"ZI": 1.0, "IZ": 1.0}, {"ZI": 1.0, "IZ": -1.0}, "ZZ"])]).result()[0].data
    one, twice, never, eigen = data.stds
    assert one == pytest.approx(1 / math.sqrt(1000), rel=0.01)
    assert twice == pytest.approx(2 * one)  # Z of both qubits are always the same
    assert never == eigen == 0
    assert data.evs[3] == 1.0
    single, _ = estimator(default_shots=1)
    assert np.isnan(single.run([(bell(), "ZI")]).result()[0].data.stds)


def test_a_constant_needs_no_shots():
    ours, transport = estimator()
    data = ours.run([(bell(), {"II": 2.5})]).result()[0].data
    assert (float(data.evs), float(data.stds), transport.tasks) == (2.5, 0.0, [])
    data = ours.run([(bell(), {"II": 2.5, "XX": 1.0})]).result()[0].data
    assert data.evs == 3.5


def test_projectors():
    state = QuantumCircuit(2)
    state.ry(0.8, 0)
    state.rx(0.5, 1)
    observable = SparseObservable.from_list([("0+", 1.0), ("r1", 2.0), ("-l", 0.5)])
    ours, _ = estimator(default_shots=4000)
    data = ours.run([(state, observable)]).result()[0].data
    expected = exact(state, SparsePauliOp.from_sparse_observable(observable))
    assert abs(data.evs - expected) < 5 * data.stds


def test_measurements_of_the_circuit_itself_stay():
    own = ClassicalRegister(1, "observable")
    circuit = QuantumCircuit(QuantumRegister(2), own)
    circuit.x(0)
    circuit.measure(0, own)
    ours, transport = estimator(default_shots=10)
    assert ours.run([(circuit, ["IZ", "ZI"])]).result()[0].data.evs.tolist() == [-1.0, 1.0]
    assert [name.name for name in qasm3.loads(transport.tasks[0][0][0].template).cregs] == [
        "observable",
        "observable1",
    ]


def test_circuits_are_compiled_to_the_target_and_observables_follow():
    circuit = efficient_su2(4, reps=1, entanglement="full")
    values = np.linspace(0.1, 2, circuit.num_parameters)
    observable = SparsePauliOp(["ZIIX", "IZYI", "XXXX", "IIIZ"], [1.0, -0.5, 0.7, 0.3])
    ours, transport = estimator(default_shots=4000, target=LINE)
    data = ours.run([(circuit, observable, values)]).result()[0].data
    assert abs(data.evs - exact(circuit, observable, values)) < 5 * data.stds
    entries, _ = transport.tasks[0]
    assert all(fits(qasm3.loads(entry.template), LINE) for entry in entries)
    again, other = estimator(default_shots=4000, target=LINE)
    again.run([(circuit.copy(), observable, values)])
    assert other.tasks == transport.tasks  # the transpiler is seeded


def test_a_circuit_that_fits_is_left_alone():
    circuit = QuantumCircuit(3)
    circuit.sx([0, 2])
    circuit.cz(1, 2)
    circuit.sx(0)  # a transpiler would put an x here
    ours, transport = estimator(default_shots=10, target=LINE)
    ours.run([(circuit, "ZXZ")])
    sent = qasm3.loads(transport.tasks[0][0][0].template)
    assert sent.num_qubits == 3
    assert [instruction.name for instruction in sent.data][:4] == ["sx", "sx", "cz", "sx"]
    assert fits(sent, LINE)


def test_a_circuit_that_was_changed_is_not_taken_for_the_one_before():
    circuit = QuantumCircuit(1)
    ours, _ = estimator(default_shots=10)
    assert ours.run([(circuit, "Z")]).result()[0].data.evs == 1.0
    circuit.x(0)
    assert ours.run([(circuit, "Z")]).result()[0].data.evs == -1.0


def test_precision_or_shots():
    ours, transport = estimator()
    assert isinstance(ours, BaseEstimatorV2)
    pubs = [(bell(), "ZI"), (bell(), "ZI", None, 0.1)]
    results = [ours.run(pubs).result(), ours.run(pubs, precision=0.3).result(), ours.run(pubs, shots=7).result()]
    assert [shots for _, shots in transport.tasks] == [4096, 100, 12, 100, 7, 100]
    assert [result[0].metadata["target_precision"] for result in results] == [1 / 64, 0.3, 1 / math.sqrt(7)]


@pytest.mark.parametrize(
    ("pub", "options", "line"),
    [
        ((bell(), "ZZZ"), {}, r"pub 0: .*circuit \(2\).*observable \(3\).*apply_layout"),
        ((bell(), "ZZ"), {"precision": 0}, r"precision must be greater than 0, not 0 \(.*shots"),
        ((bell(), "ZZ", None, 0.0), {}, "pub 0: precision must be greater than 0"),
        ((bell(), "ZZ"), {"shots": 0}, "shots must be a whole number of at least 1"),
        ((bell(), "ZZ"), {"shots": 3, "precision": 0.1}, "not both"),
        ((efficient_su2(1, reps=0), "Z"), {}, r"pub 0: .*values \(0\).*parameters \(2\).*θ\[0\], θ\[1\]"),
        ((efficient_su2(1, reps=0), "Z", [0.1, math.nan]), {}, "finite"),
        ((efficient_su2(1, reps=0), "Z", {"x": [0.1, 0.2]}), {}, "pub 0: .*parameter"),
        ((bell(), SparsePauliOp("ZZ", 1j)), {}, "pub 0: Non-Hermitian"),
        (bell(), {}, "pub 0: .*wrap"),
    ],
)
def test_what_is_refused_is_said_in_one_line(pub, options, line):
    ours, transport = estimator()
    with pytest.raises(InputError, match=line) as refused:
        ours.run([pub], **options)
    assert "\n" not in str(refused.value)
    assert transport.tasks == []


def test_defaults_are_checked():
    with pytest.raises(PayloadError, match="default_precision"):
        estimator(default_precision=0)
    with pytest.raises(InputError, match="shots"):
        estimator(default_shots=0)
