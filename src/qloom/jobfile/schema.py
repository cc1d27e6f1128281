"""The published JSON schema of job files, for editors and other tools."""

from __future__ import annotations

from typing import Any

from qloom.jobfile.model import JobFile

SCHEMA_ID = "urn:qloom:schema:jobfile:1"


def jobfile_schema() -> dict[str, Any]:
    """What a job file may hold, as JSON schema (draft 2020-12). Checks across tables are made on loading only."""
    schema = _without_null(JobFile.model_json_schema())
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID}
    return {**head, **schema, "title": "qloom job file"}


def _without_null(schema: Any) -> Any:
    """TOML has no null: what is not given is left out."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema if item != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _without_null(value) for key, value in schema.items() if (key, value) != ("default", None)}
    if len(kept.get("anyOf", ())) == 1:
        (only,) = kept.pop("anyOf")
        kept = {**only, **kept}
    return kept
