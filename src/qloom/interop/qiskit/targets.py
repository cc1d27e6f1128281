"""Qiskit's `Target` of a device, from what the device says of itself."""

from __future__ import annotations

from typing import Any

from qiskit.circuit import Measure, Reset  # type: ignore[import, unused-ignore]
from qiskit.circuit.library import get_standard_gate_name_mapping  # type: ignore[import, unused-ignore]
from qiskit.transpiler import InstructionProperties, Target  # type: ignore[import, unused-ignore]

from qloom.device import DeviceTarget
from qloom.devices.profiles import couplings_of
from qloom.errors import InputError


def qiskit_target(machine: DeviceTarget) -> Any:
    """Native gates on every qubit, those of two qubits on coupled pairs in both directions; durations in seconds."""
    known = get_standard_gate_name_mapping()
    target = Target(num_qubits=machine.qubits)
    pairs = [pair for u, v in couplings_of(machine) for pair in ((u, v), (v, u))]
    alone = [(qubit,) for qubit in range(machine.qubits)]
    for gate in machine.gates:
        if gate.name not in known:
            raise InputError(f"Qiskit has no gate {gate.name!r}", hint="name native gates as Qiskit does")
        duration_s = None if gate.duration_ns is None else gate.duration_ns * 1e-9
        places: Any = alone if gate.qubits == 1 else pairs or [(u, v) for (u,) in alone for (v,) in alone if u != v]
        target.add_instruction(known[gate.name], {place: InstructionProperties(duration_s) for place in places})
    for operation in (Measure(), Reset()):
        target.add_instruction(operation, dict.fromkeys(alone))
    return target
