"""IQM's circuits as templates of OpenQASM 3 with exact angles, and counts as IQM's measurements. Pure.

prx is the gate r of OpenQASM and Qiskit, with the same two angles in radians. Each measurement has a register of its
own, whose name is its key in hexadecimal, so that an answer is read without the circuit that it belongs to.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qloom.broker.requests import TaskRequest
from qloom.errors import PayloadError
from qloom.payloads.circuits import CircuitRows, circuit_payload

KEY = "m_"
HEAD = """OPENQASM 3.0;
include "stdgates.inc";
"""
R_GATE = "gate r(p0, p1) _q {{ U(p0, -pi/2 + p1, pi/2 - p1) _q; }}\n"
MOST_SHOTS = 2**31 - 1  # devices take far fewer
BYTES_OF_BIT = 4  # "[0]," at least, in the measurements by shot
IMPLEMENTATIONS = {"prx": "drag_crf", "cz": "crf", "measure": "constant"}

Short = Annotated[str, Field(max_length=200)]
MoveValidation = Literal["strict", "allow_prx", "none"]
MoveTracking = Literal["full", "no_detuning_correction", "none"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class IqmOperation(_Part):
    """One operation of a circuit."""

    name: Short
    locus: Annotated[list[Short], Field(min_length=1)]
    args: dict[Short, Any] = {}
    implementation: Short | None = None


class IqmCircuit(_Part):
    """One circuit; metadata is the client's own."""

    name: str
    instructions: list[IqmOperation]
    metadata: dict[str, Any] | None = None


class QubitName(_Part):
    """What a circuit calls a qubit."""

    logical_name: Short
    physical_name: Short


class IqmJob(_Part):
    """A batch of circuits. Options that there are not here are taken only with the value that turns them off."""

    circuits: Annotated[list[IqmCircuit], Field(min_length=1)]
    shots: Annotated[int, Field(gt=0, le=MOST_SHOTS)] = 1
    calibration_set_id: Short | None = None
    qubit_mapping: list[QubitName] | None = None
    max_circuit_duration_over_t2: Annotated[float, Field(ge=0, le=0)] | None = None
    heralding_mode: Literal["none"] = "none"
    active_reset_cycles: None = None
    dd_mode: Literal["disabled"] = "disabled"
    dd_strategy: None = None
    move_gate_validation: MoveValidation = "strict"  # there is no such gate here
    move_gate_frame_tracking: MoveTracking = "full"
    move_validation_mode: MoveValidation = "strict"  # the same two by their old names
    move_gate_frame_tracking_mode: MoveTracking = "full"


def read_job(body: bytes, settings: Mapping[str, Any]) -> TaskRequest:
    """The task of a job; raises `PayloadError`."""
    try:
        job = IqmJob.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(step)[:50] for step in first["loc"])
        raise PayloadError(f"{place}: {first['msg']}" if place else first["msg"]) from None
    current = settings["calibration_set"]
    if job.calibration_set_id not in (None, current):
        raise PayloadError(
            f"calibration set {job.calibration_set_id} is not the current one of {settings['device']}",
            hint=f"that is {current}; get the backend again",
        )
    number = {name: index for index, name in enumerate(settings["qubits"])}
    names = {one.logical_name: one.physical_name for one in job.qubit_mapping or ()}
    if len(names) < len(job.qubit_mapping or ()) or len(dict.fromkeys(names.values())) < len(names):
        raise PayloadError("qubit_mapping: a qubit is named twice")
    entries, bits = [], 0
    for circuit in job.circuits:
        writer = _CircuitWriter(circuit, number, names)
        entries.append(CircuitRows(writer.text(), (tuple(writer.angles),)))
        bits += writer.bits
    if (size := bits * job.shots * BYTES_OF_BIT) > settings["max_answer_bytes"]:
        raise PayloadError(
            f"the measurements may have {size} bytes, the device gives up to {settings['max_answer_bytes']}",
            hint="ask for fewer shots or circuits",
        )
    payload = circuit_payload(entries, shots=job.shots)
    note = {"door": "iqm", "calibration_set": current}
    return TaskRequest(payload, device=settings["device"], name="iqm", note=json.dumps(note))


class _CircuitWriter:
    """A circuit as lines of OpenQASM 3, its angles aside."""

    def __init__(self, circuit: IqmCircuit, number: Mapping[str, int], names: Mapping[str, str]) -> None:
        self.angles: list[float] = []
        self.bits = 0
        self._number, self._names = number, names
        self._registers: dict[str, int] = {}
        self._lines: list[str] = []
        for operation in circuit.instructions:
            self._add(operation)
        if not self._registers:
            raise PayloadError(f"circuit {circuit.name[:100]!r} measures nothing")

    def text(self) -> str:
        """The template."""
        inputs = "".join(f"input float[64] _p{index};\n" for index in range(len(self.angles)))
        gate = R_GATE.format() if self.angles else ""
        registers = "".join(f"bit[{size}] {name};\n" for name, size in self._registers.items())
        return f"{HEAD}{inputs}{gate}qubit[{len(self._number)}] q;\n{registers}{''.join(self._lines)}"

    def _add(self, operation: IqmOperation) -> None:
        name, places = operation.name, [self._place(qubit) for qubit in operation.locus]
        if len(dict.fromkeys(places)) < len(places):
            raise PayloadError(f"a {name[:50]} has a qubit twice")
        if operation.implementation not in (None, IMPLEMENTATIONS.get(name)):
            raise PayloadError(f"{name[:50]} has no implementation {operation.implementation!r} here")
        if name == "prx" and len(places) == 1:
            angle, phase = (self._angle(operation, key) for key in ("angle", "phase"))
            self._lines.append(f"r({angle}, {phase}) {places[0]};\n")
        elif name == "cz" and len(places) == 2:
            self._lines.append(f"cz {places[0]}, {places[1]};\n")
        elif name == "barrier":
            self._lines.append(f"barrier {', '.join(places)};\n")
        elif name == "measure":
            register = self._register(operation, len(places))
            self._lines += [f"{register}[{index}] = measure {place};\n" for index, place in enumerate(places)]
        else:
            raise PayloadError(
                f"there is no operation {name[:50]!r} on {len(places)} qubits here",
                hint="prx, cz, measure and barrier; transpile to the backend",
            )
        known = {"prx": ("angle", "phase"), "measure": ("key", "feedback_key")}.get(name, ())
        if unknown := [key for key in operation.args if key not in known]:
            raise PayloadError(f"{name} has no argument {unknown[0][:50]!r}")

    def _place(self, qubit: str) -> str:
        physical = self._names.get(qubit, "") if self._names else qubit
        if physical not in self._number:
            raise PayloadError(f"there is no qubit {qubit!r}", hint=f"QB1 to QB{len(self._number)}")
        return f"q[{self._number[physical]}]"

    def _angle(self, operation: IqmOperation, key: str) -> str:
        value = operation.args.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PayloadError(f"prx needs a number for {key}")
        try:
            self.angles.append(float(value))
        except OverflowError:
            raise PayloadError(f"the {key} of a prx is not finite") from None
        return f"_p{len(self.angles) - 1}"

    def _register(self, operation: IqmOperation, size: int) -> str:
        key = operation.args.get("key")
        if not isinstance(key, str) or not 0 < len(key) <= 200:
            raise PayloadError("a measure needs a key of 1 to 200 characters")
        if operation.args.get("feedback_key") is not None:
            raise PayloadError("there is no feedback here: a measure has no feedback_key")
        name = KEY + key.encode(errors="surrogatepass").hex()
        if name in self._registers:
            raise PayloadError(f"two measurements have the key {key[:100]!r}")
        self._registers[name] = size
        self.bits += size
        return name


def measurements_of(answer: Mapping[str, Any], seed: str) -> dict[str, list[list[int]]]:
    """For each key the bits of each shot. Counts have no order: shots get a random one, the same for one seed."""
    shots = [bits for bits, count in _outcomes(answer) for _ in range(count)]
    random.Random(seed).shuffle(shots)
    return {key: [shot[place] for shot in shots] for place, key in enumerate(_keys(answer["registers"]))}


def counts_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A histogram over all keys of a circuit."""
    counts = {"".join(str(bit) for one in bits for bit in one): count for bits, count in _outcomes(answer)}
    return {"measurement_keys": _keys(answer["registers"]), "counts": counts}


def _outcomes(answer: Mapping[str, Any]) -> Iterator[tuple[list[list[int]], int]]:
    """The bits of each register for each outcome; counts have the last register first and bit 0 at the right."""
    for text, count in answer["counts"].items():
        yield [[int(bit) for bit in reversed(part)] for part in reversed(text.split(" "))], count


def _keys(registers: Sequence[Sequence[Any]]) -> list[str]:
    return [bytes.fromhex(name.removeprefix(KEY)).decode(errors="surrogatepass") for name, _ in registers]
