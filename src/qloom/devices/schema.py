"""The published JSON schema of a device: its description and, where it is asked for, its state."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any

from qloom.device import STATES, Description, Device

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
    "can_stop": "Whether a task that executes can be ended; if not, no wait is promised.",
    "state": "What the device does now.",
}
LEAST = {"qubits": 1, "lanes": 1, "max_shots": 1, "max_bits": 1, "max_operations": 1, "max_duration_ns": 1,
         "max_answer_bytes": 1, "set_up_s": 0, "per_shot_s": 0}  # fmt: skip
SIMPLE: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def device_schema() -> dict[str, Any]:
    """JSON schema, draft 2020-12."""
    hints = typing.get_type_hints(Description)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for field in dataclasses.fields(Description):
        kind = hints[field.name]
        if kind in SIMPLE:
            entry: dict[str, Any] = {"type": SIMPLE[kind]}
        else:  # the only other type is a tuple of text
            assert typing.get_origin(kind) is tuple and not isinstance(kind, types.UnionType)  # noqa: S101, PT018
            entry = {
                "type": "array",
                "items": {"enum": ["qubo", "openqasm3", "pulser", "qrmi", "delay"]},
                "minItems": 1,
            }
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


def schema_text() -> str:
    """The schema as it lies in docs/reference."""
    return json.dumps(device_schema(), indent=2) + "\n"


async def describe(device: Device) -> dict[str, Any]:
    """A device as JSON, with its state now; fits the schema."""
    values = dataclasses.asdict(device.description)
    values["payloads"] = list(values["payloads"])
    return {**values, "state": await device.state()}


if __name__ == "__main__":
    print(schema_text(), end="")
