"""A gate machine on qiskit-aer: runs OpenQASM 3 circuits, and QUBOs as QAOA circuits.

QAOA's angles follow a straight ramp, a fixed schedule that needs no training loop: one circuit, one task, as a
machine would be given it.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

from qloom.devices.solvers import check_limit, seed_of
from qloom.devices.solvers.samples import samples
from qloom.errors import PayloadError
from qloom.payloads.openqasm3 import circuits
from qloom.payloads.qubo import Qubo, read_qubo

LARGEST = 20  # qubits: a state is 16 MB, and a deep circuit some seconds
LAYERS = 5
RAMP = 0.75  # the largest angle, in units of a typical qubit's energy


def solve(request: dict[str, Any]) -> Any:
    """Samples of a QUBO, or counts of each circuit (of one circuit: its counts)."""
    if request["kind"] == "qubo":
        return _solve_qubo(request)
    answers = [_counts(_within(_parse(text), request), request) for text in circuits(request["body"])]
    return answers if isinstance(request["body"], list) else answers[0]


def _solve_qubo(request: dict[str, Any]) -> dict[str, Any]:
    problem = read_qubo(request["body"])
    layers = request.get("options", {}).get("layers", LAYERS)
    if isinstance(layers, bool) or not isinstance(layers, int) or not 1 <= layers <= 100:
        raise PayloadError(f"QAOA takes 1 to 100 layers, not {layers!r}")
    counts = _counts(qaoa_circuit(problem, layers), request)["counts"]
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


def _parse(text: str) -> Any:
    qasm3: Any = importlib.import_module("qiskit.qasm3")
    try:
        return qasm3.loads(text)
    except Exception as error:  # the importer has several kinds, and raises others beside them
        raise PayloadError(f"the circuit cannot be read: {str(error).splitlines()[0][:200]}") from None


def _within(circuit: Any, request: dict[str, Any]) -> Any:
    check_limit(request, "qubits", circuit.num_qubits, "the circuit has {} qubits")
    check_limit(request, "max_bits", circuit.num_clbits, "the circuit has {} classical bits")
    check_limit(request, "max_operations", circuit.size(), "the circuit has {} operations")
    return circuit


def _counts(circuit: Any, request: dict[str, Any]) -> dict[str, Any]:
    qiskit: Any = importlib.import_module("qiskit")
    backend = importlib.import_module("qiskit_aer").AerSimulator(
        seed_simulator=seed_of(request), max_parallel_threads=1
    )
    done = backend.run(qiskit.transpile(circuit, backend, optimization_level=1), shots=request["shots"]).result()
    if not done.success:
        raise PayloadError(f"the circuit cannot be run: {done.status}")
    counts = {str(bits): int(number) for bits, number in sorted(done.get_counts().items())}
    registers = [[register.name, register.size] for register in circuit.cregs]
    return {"form": "counts", "counts": counts, "registers": registers, "shots": request["shots"]}
