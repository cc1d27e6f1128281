"""What a calibration of an emulated machine found: coherence times, errors of gates and of readout, qubit by qubit.

A target has typical values. A calibration is drawn around them, by the names of the device and of the calibration
alone, so that everybody who asks finds the same: the broker, a door, and the solver that makes noise of it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qloom.device import Description, DeviceTarget
from qloom.devices.profiles import couplings_of

SPREAD = 0.1  # of the logarithm: values of a machine differ by about this share
MOST_ERROR = 0.5


@dataclass(frozen=True)
class QubitQuality:
    """One qubit: T1 and T2, and how often readout takes 0 for 1 and 1 for 0."""

    t1_us: float
    t2_us: float
    error_0_to_1: float
    error_1_to_0: float


@dataclass(frozen=True)
class GateQuality:
    """One gate on its qubits: its error is 1 - average gate fidelity, all causes together."""

    name: str
    qubits: tuple[int, ...]
    duration_ns: float
    error: float


@dataclass(frozen=True)
class CalibrationData:
    """The figures of one calibration."""

    id: str  # empty: the device never calibrates
    qubits: tuple[QubitQuality, ...]
    gates: tuple[GateQuality, ...]


def calibration_of(device: Description, id: str | None) -> CalibrationData | None:
    """The figures of a calibration of a device; None if its target has no typical values."""
    target = device.target
    if target is None or target.t1_us is None or target.t2_us is None or target.readout_error is None:
        return None
    draw = random.Random(f"{device.name}\n{id or ''}")
    qubits = tuple(_qubit(target.t1_us, target.t2_us, target.readout_error, draw) for _ in range(target.qubits))
    return CalibrationData(id or "", qubits, tuple(_gates(target, draw)))


def _qubit(t1_us: float, t2_us: float, readout_error: float, draw: random.Random) -> QubitQuality:
    t1_us, t2_us = _around(t1_us, draw), _around(t2_us, draw)
    errors = [min(MOST_ERROR, _around(readout_error, draw)) for _ in range(2)]
    return QubitQuality(t1_us, min(t2_us, 2 * t1_us), *errors)  # no T2 is longer


def _gates(target: DeviceTarget, draw: random.Random) -> list[GateQuality]:
    found = []
    for gate in target.gates:
        if gate.error is None or gate.duration_ns is None:
            continue
        places: list[tuple[int, ...]] = [(qubit,) for qubit in range(target.qubits)]
        if gate.qubits == 2:
            places = [*couplings_of(target)]
        for place in places:
            found.append(GateQuality(gate.name, place, gate.duration_ns, min(MOST_ERROR, _around(gate.error, draw))))
    return found


def _around(typical: float, draw: random.Random) -> float:
    return typical * draw.lognormvariate(0.0, SPREAD)


def calibration_from(values: Mapping[str, Any]) -> CalibrationData:
    """A calibration from its JSON."""
    return CalibrationData(
        values["id"],
        tuple(QubitQuality(**one) for one in values["qubits"]),
        tuple(GateQuality(**{**one, "qubits": tuple(one["qubits"])}) for one in values["gates"]),
    )
