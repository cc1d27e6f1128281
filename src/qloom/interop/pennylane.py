"""A PennyLane device in front of a QPU: `job.pennylane_device(wires=2)`, or `qml.device("qloom", wires=2)`.

In a synchronous program both send circuits through the job; elsewhere `qml.device` sends them to a broker. Circuits
that PennyLane hands over together are one task: those of several observables, or a whole parameter-shift gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pennylane as qml
from pennylane.devices import Device, ExecutionConfig
from pennylane.devices.preprocess import decompose, validate_device_wires, validate_measurements
from pennylane.measurements import SampleMeasurement
from pennylane.transforms.core import CompilePipeline
from qiskit import QuantumCircuit  # type: ignore[import, unused-ignore]

from qloom.answers import Counts
from qloom.errors import InputError
from qloom.interop.qiskit.bits import check_counts
from qloom.interop.qiskit.compiling import Compiler
from qloom.interop.qiskit.pubs import ParametrisedCircuit
from qloom.interop.qiskit.transport import CircuitTasks, CircuitTransport, broker_circuits
from qloom.interop.transport import CURRENT_PROGRAM

# PennyLane's operations: Qiskit's methods. Everything else is decomposed by PennyLane.
GATES = {
    "Hadamard": "h", "PauliX": "x", "PauliY": "y", "PauliZ": "z", "S": "s", "T": "t", "SX": "sx",
    "Adjoint(S)": "sdg", "Adjoint(T)": "tdg", "Adjoint(SX)": "sxdg",
    "RX": "rx", "RY": "ry", "RZ": "rz", "PhaseShift": "p", "U3": "u",
    "CNOT": "cx", "CY": "cy", "CZ": "cz", "SWAP": "swap", "ControlledPhaseShift": "cp",
    "CRX": "crx", "CRY": "cry", "CRZ": "crz", "IsingXX": "rxx", "IsingYY": "ryy", "IsingZZ": "rzz",
    "Toffoli": "ccx", "CSWAP": "cswap",
}  # fmt: skip
WITHOUT_EFFECT = ("Identity", "GlobalPhase", "Barrier")


class QloomDevice(Device):  # type: ignore[misc, unused-ignore]
    """Samples circuits on a QPU: `device` names one; `client`, `session` and other options are those of a broker."""

    name = "qloom"

    def __init__(
        self,
        wires: Any = None,
        device: str | None = None,
        client: Any = None,
        *,
        shots: Any = None,
        transport: CircuitTransport | None = None,
        **options: Any,
    ) -> None:
        if shots is not None:
            raise InputError("a device has no shots", hint="give them to the QNode: qml.set_shots(qnode, 1000)")
        super().__init__(wires=wires)
        self._transport = transport or _transport(device, client, options)
        self._compiler = Compiler(self._transport)

    def preprocess_transforms(self, execution_config: ExecutionConfig | None = None) -> Any:
        """What a circuit becomes before `execute`: known gates, and one basis to measure in."""
        program = CompilePipeline()
        program.add_transform(validate_device_wires, self.wires, name=self.name)
        program.add_transform(
            validate_measurements,
            analytic_measurements=_is_taken,  # without shots, `execute` says what to do
            sample_measurements=_is_taken,
            name=self.name,
        )
        program.add_transform(decompose, stopping_condition=_is_gate, name=self.name, skip_initial_state_prep=False)
        program.add_transform(qml.transforms.broadcast_expand)
        program.add_transform(qml.transforms.split_non_commuting)
        program.add_transform(qml.transforms.diagonalize_measurements)
        return program

    def supports_derivatives(self, execution_config: Any = None, circuit: Any = None) -> bool:
        """Gradients are PennyLane's, by the parameter-shift rule."""
        return False

    def execute(self, circuits: Any, execution_config: ExecutionConfig | None = None) -> Any:
        """Run a batch as one task for each number of shots; several are out at the same time."""
        tapes = [circuits] if isinstance(circuits, qml.tape.QuantumScript) else list(circuits)
        by_shots: dict[int, list[int]] = {}
        for number, tape in enumerate(tapes):
            if not tape.shots.total_shots:
                hint = "qml.set_shots(qnode, 1000), or @qml.set_shots(1000)"
                raise InputError("a QPU measures with shots, and this QNode has none", hint=hint)
            by_shots.setdefault(tape.shots.total_shots, []).append(number)
        running = []
        for shots, numbers in by_shots.items():
            entries = [self._entry(tapes[number]) for number in numbers]
            running.append((shots, numbers, list(self._transport.start(entries, shots))))
        results: dict[int, Any] = {}
        for shots, numbers, tasks in running:
            answers = [answer for task in tasks for answer in task.result()]
            for number, answer in zip(numbers, answers, strict=True):
                results[number] = _result(tapes[number], check_counts(answer, len(_wires(tapes[number])), shots))
        found = tuple(results[number] for number in range(len(tapes)))
        return found[0] if isinstance(circuits, qml.tape.QuantumScript) else found

    def _entry(self, tape: Any) -> Any:
        circuit = _qiskit_circuit(tape)
        return ParametrisedCircuit(self._compiler.fit(circuit).circuit, circuit).single()

    def close(self) -> None:
        """Let go of the connection, if it is the device's own."""
        self._transport.close()


def _transport(device: str | None, client: Any, options: dict[str, Any]) -> CircuitTransport:
    program = CURRENT_PROGRAM.get()
    if program is None or client is not None or options:
        return broker_circuits(device, client, **options)
    return CircuitTasks(program.payload_transport(device))


def _is_gate(operation: Any) -> bool:
    return operation.name in GATES or operation.name in WITHOUT_EFFECT


def _is_taken(measurement: Any) -> bool:
    return isinstance(measurement, SampleMeasurement)


def _wires(tape: Any) -> Sequence[Any]:
    return list(tape.wires)


def _qiskit_circuit(tape: Any) -> Any:
    """The tape in Qiskit's gates, with all its wires measured in order."""
    place = {wire: number for number, wire in enumerate(_wires(tape))}
    circuit = QuantumCircuit(len(place), len(place))
    for operation in tape.operations:
        if operation.name in GATES:
            angles = [float(value) for value in operation.parameters]
            getattr(circuit, GATES[operation.name])(*angles, *(place[wire] for wire in operation.wires))
    circuit.measure(range(len(place)), range(len(place)))
    return circuit


def _result(tape: Any, answer: Counts) -> Any:
    """What PennyLane makes of the shots: for each copy of a shot vector, for each measurement."""
    samples = _samples(answer, len(_wires(tape)))
    order = qml.wires.Wires(_wires(tape))
    found = []
    for first, last in tape.shots.bins():
        part = [each.process_samples(samples[first:last], wire_order=order) for each in tape.measurements]
        found.append(part[0] if len(part) == 1 else tuple(part))
    return tuple(found) if tape.shots.has_partitioned_shots else found[0]


def _samples(answer: Counts, width: int) -> Any:
    """A row of bits for each shot, first wire first. Counts have no order, and a part must be a fair sample."""
    rows = np.array([[int(bit) for bit in reversed(outcome)] for outcome in answer.counts]).reshape(-1, width)
    shots = np.repeat(rows, list(answer.counts.values()), axis=0)
    return shots[np.random.default_rng(len(shots)).permutation(len(shots))]
