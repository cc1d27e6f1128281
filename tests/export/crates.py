"""Checks of a crate: the main rules, and all of them by the validator of scripts/streamflow-environment."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

ENVIRONMENT = Path(__file__).parents[2] / ".venv-crate"
CONTEXT = "lib/python3*/site-packages/rocrate/data/ro-crate.jsonld"  # of RO-Crate 1.3
BIOSCHEMAS = "https://bioschemas.org/"
OLDER_TERMS = {  # what they were in RO-Crate 1.1
    "ComputationalWorkflow": f"{BIOSCHEMAS}ComputationalWorkflow",
    "FormalParameter": f"{BIOSCHEMAS}FormalParameter",
    "input": f"{BIOSCHEMAS}ComputationalWorkflow#input",
    "output": f"{BIOSCHEMAS}ComputationalWorkflow#output",
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
            assert (crate / unquote(entity["@id"])).is_file()
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
    return found


def require_valid(crate: Path) -> None:
    """Have a copy validated against Provenance Run Crate, and thereby Workflow and Process Run Crate, offline.

    The contexts that a crate names are pages on the web; the validator is given the one that comes with ro-crate-py.
    """
    validator = ENVIRONMENT / "bin" / "rocrate-validator"
    if not validator.exists():
        pytest.skip("CRATES ARE NOT VALIDATED: scripts/streamflow-environment installs the validator")
    copy = crate.with_name(f"{crate.name}-with-context")
    shutil.copytree(crate, copy)
    (file,) = ENVIRONMENT.glob(CONTEXT)
    context = json.loads(file.read_text())["@context"] | OLDER_TERMS
    metadata = copy / "ro-crate-metadata.json"
    content = json.loads(metadata.read_text())
    words = [key for entity in content["@graph"] for key in (*entity, *_listed(entity["@type"])) if key[0] != "@"]
    assert [word for word in words if word not in context] == []
    metadata.write_text(json.dumps(content | {"@context": context}))
    command = [validator, "-y", "validate", "--offline", "--no-paging", "-v", "-p", "provenance-run-crate", copy]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-5000:]


def _listed(value):
    return value if isinstance(value, list) else [value]
