"""A gate machine on qiskit-aer: runs OpenQASM 3 circuits and counts what they measure.

A template is parsed and unrolled once, also for the tasks that follow: its circuits differ in numbers only, which are
bound as the exact doubles that came with it. Each circuit of a task draws from a random stream of its own.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qloom.devices.calibration import calibration_from
from qloom.devices.solvers import check_limit
from qloom.devices.solvers.noise import noise_model
from qloom.errors import PayloadError
from qloom.payloads.circuits import CircuitRows, is_single, read_entries
from qloom.payloads.openqasm3 import check_rows, read_circuit

LARGEST = 20  # qubits: a state is 16 MB, and a deep circuit some seconds
KEPT = 64  # templates


def solve(request: dict[str, Any]) -> Any:
    """Counts of each circuit, in order; of a body that is a single circuit, its counts."""
    answers = []
    given = request.get("calibration")  # of a noisy device
    calibration = calibration_from(given) if given is not None else None
    for number, (circuit, registers, qubits) in enumerate(_circuits(read_entries(request["body"]), request)):
        noise = noise_model(calibration, qubits) if calibration is not None else None
        seed = circuit_seed(request["seed"], number)
        answers.append(run(circuit, registers, request["shots"], seed, noise))
    return answers[0] if is_single(request["body"]) else answers


def circuit_seed(seed: int, number: int) -> int:
    """The seed of one circuit of a task: circuits that are equal must not measure the same."""
    text = f"{seed}.{number}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % 2**31


def _circuits(
    entries: Sequence[CircuitRows], request: dict[str, Any]
) -> Iterator[tuple[Any, list[tuple[str, int]], tuple[int, ...]]]:
    """Each circuit, its registers, and which qubits of the machine its qubits are."""
    for entry in entries:
        found = read_circuit(entry.template)
        check_rows(entry, found)
        circuit, qubits = _unrolled(entry.template)
        check_limit(request, "qubits", circuit.num_qubits, "the circuit uses {} qubits")
        check_limit(request, "max_bits", circuit.num_clbits, "the circuit has {} classical bits")
        check_limit(request, "max_operations", circuit.size(), "the circuit has {} operations")
        inputs = {parameter.name: parameter for parameter in circuit.parameters}
        for row in entry.rows:
            values = {inputs[name]: value for name, value in zip(found.inputs, row, strict=True) if name in inputs}
            yield (circuit.assign_parameters(values) if values else circuit), found.registers, qubits


@functools.lru_cache(KEPT)
def _unrolled(template: str) -> tuple[Any, tuple[int, ...]]:
    qasm3: Any = importlib.import_module("qiskit.qasm3")
    try:
        circuit = qasm3.loads(template)
    except Exception as error:  # the importer has several kinds, and raises others beside them
        raise PayloadError(f"the circuit cannot be read: {_with_line(str(error))}") from None
    compact, qubits = _without_idle_qubits(circuit)
    return unroll(compact), qubits


def _without_idle_qubits(circuit: Any) -> tuple[Any, tuple[int, ...]]:
    """A circuit for a large machine may use few of its qubits; the simulator would count all of them.

    Returns the circuit, and the numbers that its qubits had before.
    """
    qiskit: Any = importlib.import_module("qiskit")
    used = {qubit for one in circuit.data if one.name != "barrier" for qubit in one.qubits}
    if len(used) == circuit.num_qubits:
        return circuit, tuple(range(circuit.num_qubits))
    kept = [qubit for qubit in circuit.qubits if qubit in used]
    compact = qiskit.QuantumCircuit(kept, circuit.clbits, *circuit.cregs)
    for one in circuit.data:
        if one.name != "barrier":
            compact.append(one)
    return compact, tuple(index for index, qubit in enumerate(circuit.qubits) if qubit in used)


def _with_line(message: str) -> str:
    """The importer's message; it begins with line and column where it knows them."""
    first = message.strip('"').partition("\n")[0][:200]
    found = re.match(r"(\d+),\d+: (.*)", first)
    return f"{found[2]} (line {found[1]})" if found else first


def unroll(circuit: Any, optimization_level: int = 0) -> Any:
    """The circuit in gates that the simulator has."""
    qiskit: Any = importlib.import_module("qiskit")
    return qiskit.transpile(circuit, _simulator(), optimization_level=optimization_level)


@functools.cache
def _simulator() -> Any:
    return importlib.import_module("qiskit_aer").AerSimulator(max_parallel_threads=1)


def run(
    circuit: Any, registers: Sequence[tuple[str, int]], shots: int, seed: int, noise: Any = None
) -> dict[str, Any]:
    """The counts of a circuit that is bound and unrolled, with an Aer noise model if there is one."""
    noisy = {} if noise is None else {"noise_model": noise}
    done = _simulator().run(circuit, shots=shots, seed_simulator=seed, **noisy).result()
    if not done.success:
        raise PayloadError(f"the circuit cannot be run: {done.status}")
    counts = counts_by_register(done.data(0)["counts"], registers)
    return {"form": "counts", "counts": counts, "registers": [list(one) for one in registers], "shots": shots}


def counts_by_register(found: Mapping[str, int], registers: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Counts by hexadecimal outcome, as Qiskit writes them: the last register first, bit 0 of each at its right."""
    counts: dict[str, int] = {}
    for outcome, number in found.items():
        value, texts = int(outcome, 16), []
        for _, size in registers:
            texts.append(format(value & ((1 << size) - 1), f"0{size}b"))
            value >>= size
        counts[" ".join(reversed(texts))] = int(number)
    return dict(sorted(counts.items()))
