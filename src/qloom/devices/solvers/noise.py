"""Noise of an emulated gate machine, for qiskit-aer, from the figures of a calibration.

Each native gate is followed by relaxation over its duration (T1, T2 of its qubits) and by as much depolarisation as
it takes to reach the gate's error; if relaxation alone is worse than that error, there is none. Readout takes 0 for 1
and 1 for 0. Qubits that wait are not noisy, and there is no crosstalk.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Sequence
from typing import Any

from qloom.devices.calibration import CalibrationData, GateQuality, QubitQuality


@functools.lru_cache(64)
def noise_model(calibration: CalibrationData, qubits: tuple[int, ...]) -> Any:
    """An Aer noise model of a circuit whose qubits are these qubits of the machine, in this order."""
    noise: Any = importlib.import_module("qiskit_aer.noise")
    model = noise.NoiseModel()
    place = {qubit: index for index, qubit in enumerate(qubits)}
    for gate in calibration.gates:
        if all(qubit in place for qubit in gate.qubits):
            for order in (gate.qubits, gate.qubits[::-1]) if len(gate.qubits) == 2 else (gate.qubits,):
                error = _gate_error(noise, gate, [calibration.qubits[qubit] for qubit in order])
                model.add_quantum_error(error, [gate.name], [place[qubit] for qubit in order])
    for qubit, index in place.items():
        wrong = calibration.qubits[qubit]
        table = [[1 - wrong.error_0_to_1, wrong.error_0_to_1], [wrong.error_1_to_0, 1 - wrong.error_1_to_0]]
        model.add_readout_error(noise.ReadoutError(table), [index])
    return model


def _gate_error(noise: Any, gate: GateQuality, qubits: Sequence[QubitQuality]) -> Any:
    relaxations = [
        noise.thermal_relaxation_error(one.t1_us * 1e3, one.t2_us * 1e3, gate.duration_ns) for one in qubits
    ]
    relaxation = relaxations[0] if len(relaxations) == 1 else relaxations[1].tensor(relaxations[0])
    strength = depolarisation(gate, qubits)
    return relaxation.compose(noise.depolarizing_error(strength, len(qubits))) if strength > 0 else relaxation


def depolarisation(gate: GateQuality, qubits: Sequence[QubitQuality]) -> float:
    """The probability to lose the state that brings relaxation over a gate up to the gate's error."""
    size = 1 << len(qubits)
    process = math.prod(_relaxed(one, gate.duration_ns * 1e-3) for one in qubits)
    average = (size * process + 1) / (size + 1)
    return max(0.0, (average - (1 - gate.error)) / (average - 1 / size))


def _relaxed(qubit: QubitQuality, for_us: float) -> float:
    """The process fidelity of relaxation."""
    return (1 + math.exp(-for_us / qubit.t1_us) + 2 * math.exp(-for_us / qubit.t2_us)) / 4
