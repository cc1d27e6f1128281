"""The published schema and the example."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema

from qloom.jobfile import jobfile_schema
from qloom.runs.runner import run
from tests.unit.jobfile.examples import CANDIDATE, EXAMPLE, LOOP, ONE, PUBLISHED, work_directory


def test_published_schema_is_current() -> None:
    assert json.loads(PUBLISHED.read_text()) == jobfile_schema(), (
        "the schema has changed; publish it: python -m qloom.jobfile > docs/reference/jobfile.schema.json"
    )


def test_schema_describes_every_field() -> None:
    schema = jobfile_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"].startswith("urn:qloom:")
    for table in (schema, *schema["$defs"].values()):
        assert table["description"]
        assert table["additionalProperties"] is False
        assert [name for name, field in table["properties"].items() if not field.get("description")] == []


def test_schema_agrees_with_the_loader(tmp_path: Path) -> None:
    check = jsonschema.Draft202012Validator(jobfile_schema()).is_valid
    assert check(tomllib.loads(EXAMPLE.read_text()))
    assert check(tomllib.loads(LOOP))
    assert check(tomllib.loads(CANDIDATE))
    assert not check(tomllib.loads(LOOP.replace("max_iterations = 4", "")))
    assert not check(tomllib.loads(LOOP.replace("at_least = 4", "at_least = 4, below = 1")))
    assert not check(tomllib.loads(LOOP.replace("shots = 5", "shot = 5")))
    assert not check(tomllib.loads(LOOP.replace("shots = 5", 'command = ["true"]')))
    assert not check(tomllib.loads(ONE.replace('["true"]', '"true"')))


def test_example_runs() -> None:
    outcome = run(str(EXAMPLE))
    assert outcome.result["converged"] is True
    assert 1 < outcome.result["iterations"] <= 8
    assert (work_directory(outcome) / "report.txt").read_text().startswith("iterations: ")
    replayed = run(str(EXAMPLE), world="virtual", profile=str(outcome.directory), in_memory=True)
    assert replayed.result == outcome.result
