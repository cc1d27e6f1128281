"""The published JSON schema of a device: its description and, where it is asked for, its state."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Any

from qloom.device import STATES, Description, Device, DeviceTarget, NativeGate

SCHEMA_ID = "urn:qloom:schema:device:1"
MEANINGS = {
    "name": "What users call the device.",
    "technology": "superconducting, neutral-atoms, trapped-ion, annealer or photonic.",
    "qubits": "The largest problem that it takes: variables, qubits or atoms.",
    "payloads": "Kinds of payload that it takes; a delay only uses the time of an emulated device.",
    "set_up_s": "Seconds before the first shot of a task.",
    "per_shot_s": "Seconds for each shot of each circuit.",
    "lanes": "Tasks that it runs at once.",
    "local_addressing": "Whether each variable, qubit or atom can be driven on its own.",
    "emulated": "Whether a computer stands in for the machine.",
    "notes": "Where the figures are from, and what else users should know.",
    "max_shots": "The most shots of one task.",
    "set_up_shared": "Whether a task that follows one with the same set-up key does not pay for set-up again.",
    "tells_billed_s": "Whether it says how many seconds it bills.",
    "max_bits": "The most classical bits of one circuit.",
    "max_operations": "The most operations of one task, with loops and gate definitions written out.",
    "max_duration_ns": "The longest pulse sequence.",
    "max_answer_bytes": "The largest answer.",
    "vendor_queue": "Whether tasks wait in a queue of the vendor's, too; then no wait is promised.",
    "max_circuits": "The most circuits of one task.",
    "target": "What it is made of: qubits, couplings, native gates; null: not known.",
    "compiles": "Whether it makes circuits fit its target; if not, circuits that do not fit are refused.",
    "max_used": "The most qubits or atoms that a circuit or sequence may use, if fewer than `qubits`; 0: no fewer.",
    "can_stop": "Whether a task that executes can be ended; if not, no wait is promised.",
    "options": "Options of a payload that it knows; others are refused. null: not known, any is passed on.",
    "state": "What the device does now.",
}
PARTS = {
    "name": "What a circuit calls the gate.",
    "qubits": "Qubits: of a gate, or of the machine; or atoms.",
    "duration_ns": "How long it takes, in nanoseconds; null: not known.",
    "couplings": "Pairs of qubits that a gate of two qubits works on, in both directions.",
    "gates": "The gates that it carries out as they are; none: any.",
    "channels": "Channels of pulse sequences; none: any.",
    "graph": "Couplings by name: `chimera ROWS COLUMNS SHORE`.",
    "min_distance_um": "Least distance of two atoms in micrometres; null: not known.",
    "error": "Typical error: 1 - average gate fidelity; null: not known.",
    "t1_us": "Typical T1 in microseconds; null: not known.",
    "t2_us": "Typical T2 in microseconds; null: not known.",
    "readout_error": "Typical probability to read the other value; null: not known.",
    "max_radius_um": "Largest distance of an atom from the middle in micrometres; null: not known.",
}
LEAST = {"qubits": 1, "lanes": 1, "max_shots": 1, "max_bits": 1, "max_operations": 1, "max_duration_ns": 1,
         "max_answer_bytes": 1, "max_used": 0, "max_circuits": 1, "set_up_s": 0, "per_shot_s": 0}  # fmt: skip
SIMPLE: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def device_schema() -> dict[str, Any]:
    """JSON schema, draft 2020-12."""
    hints = typing.get_type_hints(Description)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for field in dataclasses.fields(Description):
        entry = _entry(hints[field.name])
        if field.name == "payloads":
            entry |= {"items": {"enum": ["qubo", "openqasm3", "pulser", "qrmi", "delay"]}, "minItems": 1}
        if field.name in LEAST:
            entry["minimum"] = LEAST[field.name]
        if field.default is dataclasses.MISSING:
            required.append(field.name)
        else:
            entry["default"] = field.default
        properties[field.name] = {**entry, "description": MEANINGS[field.name]}
    properties["state"] = {"enum": list(STATES), "description": MEANINGS["state"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "qloom device",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _entry(kind: Any) -> dict[str, Any]:
    """The schema of one type: a simple one, one of them or nothing, a tuple, or a dataclass of such."""
    if kind in SIMPLE:
        return {"type": SIMPLE[kind]}
    if isinstance(kind, types.UnionType):
        inner = _entry(next(part for part in typing.get_args(kind) if part is not type(None)))
        return {"anyOf": [inner, {"type": "null"}]}
    if typing.get_origin(kind) is tuple:
        parts = typing.get_args(kind)
        if parts[-1] is Ellipsis:
            return {"type": "array", "items": _entry(parts[0])}
        return {"type": "array", "items": _entry(parts[0]), "minItems": len(parts), "maxItems": len(parts)}
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    return {
        "type": "object",
        "properties": {
            field.name: {**_entry(hints[field.name]), "description": PARTS[field.name]} for field in fields
        },
        "required": [field.name for field in fields if field.default is dataclasses.MISSING],
        "additionalProperties": False,
    }


def schema_text() -> str:
    """The schema as it lies in docs/reference."""
    return json.dumps(device_schema(), indent=2) + "\n"


def description_from(view: Mapping[str, Any]) -> Description:
    """The description in a device as JSON; what a broker of another version has beside it is left out."""
    names = [field.name for field in dataclasses.fields(Description)]
    values = {name: view[name] for name in names if name in view}
    target = target_from(values["target"]) if values.get("target") else None
    options = tuple(values["options"]) if values.get("options") is not None else None
    return Description(**{**values, "payloads": tuple(values["payloads"]), "target": target, "options": options})


def target_from(values: Mapping[str, Any]) -> DeviceTarget:
    """A target from its JSON."""
    names = [field.name for field in dataclasses.fields(DeviceTarget)]
    parts = {name: values[name] for name in names if name in values}
    parts["couplings"] = tuple((int(u), int(v)) for u, v in parts.get("couplings", ()))
    parts["gates"] = tuple(NativeGate(**gate) for gate in parts.get("gates", ()))
    parts["channels"] = tuple(parts.get("channels", ()))
    return DeviceTarget(**parts)


async def describe(device: Device) -> dict[str, Any]:
    """A device as JSON, with its state now; fits the schema."""
    values = json.loads(json.dumps(dataclasses.asdict(device.description)))
    return {**values, "state": await device.state()}


if __name__ == "__main__":
    print(schema_text(), end="")
