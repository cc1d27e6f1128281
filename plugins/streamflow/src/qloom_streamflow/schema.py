"""The JSON schemas of this plugin: what a `config` in streamflow.yml may hold."""

from __future__ import annotations

import json
from typing import Any

BASE = "https://qloom.invalid/schemas/streamflow/"  # a name, not an address
LOG = {"type": "string", "description": "A file for what happens to each step, as JSON lines"}
BROKER = {
    "type": "string",
    "description": "Where the broker is: unix:PATH or http://HOST:PORT; $QLOOM_BROKER unless given",
}
DEVICE = {"type": "string", "description": "A QPU; the one with the least to do unless given"}


def schema(name: str, properties: dict[str, Any], **more: Any) -> str:
    """A schema as StreamFlow takes it: with a name of its own, and nothing unknown."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{BASE}{name}.json", "type": "object"}
    return json.dumps({**head, **more, "properties": properties, "additionalProperties": False})
