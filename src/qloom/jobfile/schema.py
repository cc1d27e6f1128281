"""The published JSON schema of job files, for editors and other tools."""

from __future__ import annotations

from typing import Any

from qloom.jobfile.model import JobFile

SCHEMA_ID = "urn:qloom:schema:jobfile:1"


def jobfile_schema() -> dict[str, Any]:
    """What a job file may hold, as JSON schema (draft 2020-12). Checks across tables are made on loading only."""
    schema = _plain(JobFile.model_json_schema())
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID}
    return {**head, **schema, "title": "qloom job file"}


def _plain(schema: Any) -> Any:
    """Without null, which TOML has not, and the same whatever pydantic says beside a constant."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema if item != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _plain(value) for key, value in schema.items() if (key, value) != ("default", None)}
    if "const" in kept:
        kept = {key: value for key, value in kept.items() if key not in ("type", "enum")}
    if len(kept.get("anyOf", ())) == 1:
        (only,) = kept.pop("anyOf")
        kept = {**only, **kept}
    return kept
