"""A gate machine on qiskit-aer: runs OpenQASM 3 circuits, and QUBOs as QAOA circuits.

QAOA's angles follow a straight ramp, a fixed schedule that needs no training loop: one circuit, one task, as a
machine would be given it.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

from qloom.devices.solvers import aer, seed_of
from qloom.devices.solvers.samples import samples
from qloom.errors import PayloadError
from qloom.payloads.qubo import Qubo, read_qubo

LARGEST = aer.LARGEST
LAYERS = 5
RAMP = 0.75  # the largest angle, in units of a typical qubit's energy


def solve(request: dict[str, Any]) -> Any:
    """Samples of a QUBO, or counts of circuits."""
    return _solve_qubo(request) if request["kind"] == "qubo" else aer.solve(request)


def _solve_qubo(request: dict[str, Any]) -> dict[str, Any]:
    problem = read_qubo(request["body"])
    layers = request.get("options", {}).get("layers", LAYERS)
    if isinstance(layers, bool) or not isinstance(layers, int) or not 1 <= layers <= 100:
        raise PayloadError(f"QAOA takes 1 to 100 layers, not {layers!r}")
    circuit = aer.unroll(qaoa_circuit(problem, layers), optimization_level=1)
    counts = aer.run(circuit, [("meas", len(problem.variables))], request["shots"], seed_of(request))["counts"]
    rows = []
    for text, occurrences in counts.items():
        values = [int(bit) for bit in reversed(text)]  # qiskit writes the first bit last
        rows.append((values, problem.energy(values), occurrences))
    return samples(problem, rows, layers=layers)


def qaoa_circuit(problem: Qubo, layers: int) -> Any:
    """Each layer turns every state by its energy, then mixes."""
    qiskit: Any = importlib.import_module("qiskit")
    count = len(problem.variables)
    fields = [-bias / 2 for bias in problem.linear]  # x = (1 - z) / 2
    for (u, v), bias in problem.quadratic.items():
        fields[u] -= bias / 4
        fields[v] -= bias / 4
    couplings = {pair: bias / 4 for pair, bias in problem.couplings().items()}
    typical = math.sqrt(sum(value**2 for value in [*fields, *couplings.values()]) / count) or 1.0
    circuit = qiskit.QuantumCircuit(count)
    circuit.h(range(count))
    for layer in range(layers):
        share = (layer + 0.5) / layers
        gamma, beta = RAMP * share / typical, RAMP * (1 - share)
        for qubit, value in enumerate(fields):
            circuit.rz(2 * gamma * value, qubit)
        for (u, v), value in couplings.items():
            circuit.rzz(2 * gamma * value, u, v)
        circuit.rx(-2 * beta, range(count))  # all plus is the lowest state of minus the mixer: hence the sign
    circuit.measure_all()
    return circuit
