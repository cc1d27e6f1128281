"""Checks of a crate: by roc-validator where `$QLOOM_CRATE_VALIDATOR` names it, and the main rules anywhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

BIOSCHEMAS = "https://bioschemas.org/"
TERMS = {
    "File": "http://schema.org/MediaObject",
    "ComputationalWorkflow": f"{BIOSCHEMAS}ComputationalWorkflow",
    "FormalParameter": f"{BIOSCHEMAS}FormalParameter",
    "input": f"{BIOSCHEMAS}ComputationalWorkflow#input",
    "output": f"{BIOSCHEMAS}ComputationalWorkflow#output",
    "conformsTo": "http://purl.org/dc/terms/conformsTo",
}


def entities(crate: Path) -> dict[str, dict]:
    graph = json.loads((crate / "ro-crate-metadata.json").read_text())["@graph"]
    by_name = {entity["@id"]: entity for entity in graph}
    assert len(by_name) == len(graph), "an entity is described twice"
    return by_name


def require_sound(crate: Path) -> dict[str, dict]:
    """What the profiles require: every reference and file is there, actions have instruments and times."""
    found = entities(crate)
    for entity in found.values():
        for value in entity.values():
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, dict) and not part["@id"].startswith("http"):
                    assert part["@id"] in found, f"{entity['@id']} refers to {part['@id']}, which is not described"
        if "File" in entity["@type"]:
            assert (crate / entity["@id"]).is_file()
            assert {"@id": entity["@id"]} in found["./"]["hasPart"]
    workflow = found[found["./"]["mainEntity"]["@id"]]
    assert "ComputationalWorkflow" in workflow["@type"]
    run = found["#run"]
    assert run["instrument"] == {"@id": workflow["@id"]}
    assert all({"@id": name} in found["./"]["mentions"] for name in found if name.startswith("#action-"))
    for entity in found.values():
        if entity["@type"] == "CreateAction":
            assert entity["startTime"] <= entity["endTime"]
            assert entity["instrument"]["@id"] in found
    _validate(crate)
    return found


def _validate(crate: Path) -> None:
    validator = os.environ.get("QLOOM_CRATE_VALIDATOR")
    if validator is None:
        return
    copy = crate.with_name(f"{crate.name}-with-context")  # contexts are not fetched from the network
    shutil.copytree(crate, copy)
    metadata = copy / "ro-crate-metadata.json"
    content = json.loads(metadata.read_text())
    words = {key for entity in content["@graph"] for key in entity if key[0] != "@"}
    kinds = {kind for entity in content["@graph"] for kind in _listed(entity["@type"])}
    content["@context"] = {word: f"http://schema.org/{word}" for word in sorted(words | kinds)} | TERMS
    metadata.write_text(json.dumps(content))
    for profile in ("workflow-run-crate", "provenance-run-crate"):
        command = [validator, "-y", "validate", "--no-paging", "-v", "-p", profile, "-l", "REQUIRED", str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-5000:]


def _listed(value):
    return value if isinstance(value, list) else [value]
