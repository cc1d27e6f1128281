"""Noise of an emulated gate machine against a density-matrix calculation that shares nothing with it."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import asdict

import numpy as np
import pytest

from qloom.devices.calibration import calibration_of
from qloom.devices.factory import make_device
from qloom.devices.profiles import load_profile
from qloom.errors import InputError

qiskit = pytest.importorskip("qiskit")
pytest.importorskip("qiskit_aer")

SHOTS = 20_000
I2, X, Y, Z = np.eye(2), np.array([[0, 1], [1, 0]]), np.array([[0, -1j], [1j, 0]]), np.diag([1, -1])
PATH = (0, 1, 4, 3, 8, 7, 2, 9)  # qubits of the machine, each coupled with one before it


def relaxation(qubit, for_us):
    """Kraus operators of amplitude damping, then of dephasing up to T2."""
    damped = 1 - math.exp(-for_us / qubit.t1_us)
    kept = math.exp(-for_us / qubit.t2_us) / math.sqrt(1 - damped)
    fall = [np.diag([1, math.sqrt(1 - damped)]), np.array([[0, math.sqrt(damped)], [0, 0]])]
    blur = [math.sqrt((1 + kept) / 2) * I2, math.sqrt((1 - kept) / 2) * Z]
    return [b @ a for b, a in itertools.product(blur, fall)]


def channel(gate, calibration):
    """Kraus operators of all that happens after a gate, strong enough to have the gate's error."""
    parts = [relaxation(calibration.qubits[qubit], gate.duration_ns * 1e-3) for qubit in gate.qubits]
    relaxed = [functools.reduce(np.kron, kraus) for kraus in itertools.product(*parts)]
    size = 2 ** len(gate.qubits)
    paulis = [functools.reduce(np.kron, one) for one in itertools.product([I2, X, Y, Z], repeat=len(gate.qubits))]

    def with_loss(loss):
        weights = [1 - loss + loss / size**2, *[loss / size**2] * (size**2 - 1)]
        lost = [math.sqrt(weight) * pauli for weight, pauli in zip(weights, paulis, strict=True)]
        return [b @ a for b, a in itertools.product(lost, relaxed)]

    low, high = 0.0, 0.5
    for _ in range(30):
        middle = (low + high) / 2
        process = sum(abs(np.trace(one)) ** 2 for one in with_loss(middle)) / size**2
        low, high = (middle, high) if 1 - (size * process + 1) / (size + 1) < gate.error else (low, middle)
    return with_loss(low)


def applied(state, operators, places, size):
    """A channel on some qubits of a density matrix with an axis for each qubit, rows first."""
    total = 0
    for kraus in operators:
        tensor = kraus.reshape([2] * (2 * len(places)))
        inner = list(range(len(places), 2 * len(places)))
        rows = np.moveaxis(np.tensordot(tensor, state, (inner, places)), range(len(places)), places)
        columns = [size + place for place in places]
        total = total + np.moveaxis(np.tensordot(tensor.conj(), rows, (inner, columns)), range(len(places)), columns)
    return total


def expected(circuit, calibration):
    """Probabilities to read all zeros and all ones, by density matrix."""
    size = circuit.num_qubits
    machine = dict(zip(range(size), PATH, strict=False))
    gates = {(gate.name, frozenset(gate.qubits)): gate for gate in calibration.gates}
    state = np.zeros([2] * (2 * size), complex)
    state[(0,) * (2 * size)] = 1
    for one in circuit.data:
        if one.operation.name not in ("r", "cz"):
            continue
        places = [circuit.find_bit(qubit).index for qubit in one.qubits]
        unitary = one.operation.to_matrix()
        gate = gates[one.operation.name, frozenset(machine[place] for place in places)]
        ordered = [next(place for place in places if machine[place] == qubit) for qubit in gate.qubits]
        state = applied(state, [unitary], places, size)  # cz is the same in both orders
        state = applied(state, channel(gate, calibration), ordered, size)
    populations = np.real(np.diagonal(state.reshape(2**size, 2**size))).reshape([2] * size)
    for place in range(size):
        quality = calibration.qubits[machine[place]]
        up, down = quality.error_0_to_1, quality.error_1_to_0
        read = np.array([[1 - up, down], [up, 1 - down]])
        populations = np.moveaxis(np.tensordot(read, populations, (1, place)), 0, place)
    return populations[(0,) * size], populations[(1,) * size]


def ghz(size):
    """A GHZ state in native gates along the path of coupled qubits."""
    from qiskit.circuit import QuantumCircuit

    circuit = QuantumCircuit(size)
    circuit.r(math.pi / 2, math.pi / 2, 0)
    for qubit in range(1, size):
        before = next(one for one in range(qubit) if coupled(PATH[one], PATH[qubit]))
        circuit.r(math.pi / 2, -math.pi / 2, qubit)
        circuit.cz(before, qubit)
        circuit.r(math.pi / 2, math.pi / 2, qubit)
    circuit.measure_all()
    return circuit


def coupled(u, v):
    target = load_profile("iqm-20").target
    return (u, v) in target.couplings or (v, u) in target.couplings


def counts(size, calibration):
    """What the solver of an emulated device counts for the circuit on the machine's own qubits."""
    from qiskit.circuit import QuantumCircuit

    from qloom.devices.solvers.aer import solve
    from qloom.payloads.qiskit import write_template

    large = QuantumCircuit(20, size)
    small = ghz(size)
    for one in small.data:
        if one.operation.name in ("r", "cz"):
            large.append(one.operation, [PATH[small.find_bit(qubit).index] for qubit in one.qubits])
    large.measure(PATH[:size], range(size))
    template = write_template(large)
    body = {"template": template.text, "rows": [list(row) for row in template.rows()]}
    request = {"kind": "openqasm3", "body": body, "shots": SHOTS, "seed": size, "options": {}, "limits": {}}
    if calibration is not None:
        request["calibration"] = asdict(calibration)
    return solve(request)["counts"]


@pytest.mark.parametrize("size", range(2, 9))
def test_populations_of_noisy_ghz_states_are_those_of_a_density_matrix(size):
    calibration = calibration_of(load_profile("iqm-20"), "c1")
    found = counts(size, calibration)
    for outcome, probability in zip("01", expected(ghz(size), calibration), strict=True):
        deviation = math.sqrt(SHOTS * probability * (1 - probability))
        assert abs(found[outcome * size] - SHOTS * probability) < 3 * deviation
    assert sum(found[outcome * size] for outcome in "01") < SHOTS * (1 - 0.05 * size)


def test_without_noise_only_two_outcomes_are_there():
    found = counts(8, None)
    assert set(found) == {"0" * 8, "1" * 8}
    assert all(abs(count - SHOTS / 2) < 4 * math.sqrt(SHOTS) / 2 for count in found.values())


def test_a_calibration_is_the_same_for_everybody_and_another_one_differs():
    device = load_profile("iqm-20")
    assert calibration_of(device, "c1") == calibration_of(device, "c1") != calibration_of(device, "c2")
    assert all(qubit.t2_us <= 2 * qubit.t1_us for qubit in calibration_of(device, "c1").qubits)
    assert calibration_of(load_profile("helmi"), "c1") is None


def test_noise_without_figures_or_on_a_machine_that_compiles_is_refused():
    for values in ({"kind": "aer"}, {"kind": "aer", "profile": "iqm-20", "compiles": True}):
        with pytest.raises(InputError, match="noise needs a machine"):
            make_device({**values, "noise": True})
    assert make_device({"kind": "aer", "profile": "iqm-20", "noise": True}).description.qubits == 20
