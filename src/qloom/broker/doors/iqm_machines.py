"""A gate machine as IQM Server describes it: architectures, the calibration set, and its quality metrics."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from qloom.broker.doors.door import named_uuid, target_of
from qloom.broker.doors.iqm_circuits import IMPLEMENTATIONS
from qloom.device import Description
from qloom.devices.calibration import CalibrationData, calibration_of
from qloom.devices.profiles import couplings_of

GATES = {"r": "prx", "cz": "cz"}  # IQM's names of native gates
EPOCH = datetime.fromtimestamp(0, UTC).isoformat()  # for what has no time


def qubit_names(device: Description) -> list[str]:
    """QB1, QB2, ... in the order of the target's qubits."""
    return [f"QB{number + 1}" for number in range(target_of(device).qubits)]


def static_architecture(device: Description) -> dict[str, Any]:
    """Qubits and couplers."""
    return {
        "dut_label": device.name,
        "qubits": qubit_names(device),
        "computational_resonators": [],
        "connectivity": _pairs(device),
    }


def architecture(device: Description, set_id: str) -> dict[str, Any]:
    """Which gate works where."""
    alone = [[name] for name in qubit_names(device)]
    loci = {"prx": alone, "cz": _pairs(device), "measure": alone}
    return {
        "calibration_set_id": set_id,
        "qubits": qubit_names(device),
        "computational_resonators": [],
        "gates": {
            gate: {
                "implementations": {IMPLEMENTATIONS[gate]: {"loci": places}},
                "default_implementation": IMPLEMENTATIONS[gate],
                "override_default_implementation": {},
            }
            for gate, places in loci.items()
        },
    }


def calibration_set(device: Description, set_id: str, calibration: str | None) -> dict[str, Any]:
    """Durations of gates."""
    names, data = qubit_names(device), calibration_of(device, calibration)
    values = [
        (f"gates.{_gate(gate.name, [names[qubit] for qubit in gate.qubits])}.duration", gate.duration_ns * 1e-9, "s")
        for gate in (data.gates if data is not None else ())
    ]
    return _observations(device, set_id, "calibration-set", None, values)


def quality_metrics(device: Description, set_id: str, calibration: str | None) -> dict[str, Any]:
    """Fidelities of gates, errors of readout and coherence times; none if the target has no such figures."""
    data = calibration_of(device, calibration)
    values = _metrics(qubit_names(device), data) if data is not None else []
    own = named_uuid("metrics", set_id)
    return _observations(device, own, "quality-metric-set", set_id, values)


def _metrics(names: list[str], data: CalibrationData) -> list[tuple[str, float, str]]:
    values: list[tuple[str, float, str]] = []
    for name, qubit in zip(names, data.qubits, strict=True):
        readout = f"metrics.ssro.{_gate('measure', [name])}"
        values += [
            (f"characterization.model.{name}.t1_time", qubit.t1_us * 1e-6, "s"),
            (f"characterization.model.{name}.t2_time", qubit.t2_us * 1e-6, "s"),
            (f"{readout}.fidelity", 1 - (qubit.error_0_to_1 + qubit.error_1_to_0) / 2, ""),
            (f"{readout}.error_0_to_1", qubit.error_0_to_1, ""),
            (f"{readout}.error_1_to_0", qubit.error_1_to_0, ""),
        ]
    for gate in data.gates:
        method = "rb" if len(gate.qubits) == 1 else "irb"
        place = _gate(gate.name, [names[qubit] for qubit in gate.qubits])
        values.append((f"metrics.{method}.{place}.fidelity", 1 - gate.error, ""))
    return values


def _gate(name: str, qubits: list[str]) -> str:
    gate = GATES.get(name, name)
    return f"{gate}.{IMPLEMENTATIONS[gate]}.{'__'.join(qubits)}"


def _pairs(device: Description) -> list[list[str]]:
    names = qubit_names(device)
    return [[names[u], names[v]] for u, v in couplings_of(target_of(device))]


def _observations(
    device: Description, id: str, kind: str, describes: str | None, values: list[tuple[str, float, str]]
) -> dict[str, Any]:
    return {
        "observation_set_id": id,
        "observation_set_type": kind,
        "describes_id": describes,
        "invalid": False,
        "dut_label": device.name,
        "created_timestamp": EPOCH,
        "end_timestamp": EPOCH,
        "observation_ids": list(range(1, len(values) + 1)),
        "observations": [
            {
                "observation_id": number,
                "dut_label": device.name,
                "dut_field": field,
                "value": value,
                "unit": unit,
                "uncertainty": None,
                "invalid": False,
                "created_timestamp": EPOCH,
                "modified_timestamp": EPOCH,
                "source": {"type": "specification_source"},
                "tags": [],
            }
            for number, (field, value, unit) in enumerate(values, 1)
        ],
    }
