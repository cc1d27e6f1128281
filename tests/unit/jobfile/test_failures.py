"""Job files that fail while they run, and the conditions of loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qloom.errors import JobError
from qloom.jobfile.files import is_met, read_value
from qloom.jobfile.model import Until
from qloom.runs.runner import run
from tests.unit.jobfile.examples import LOOP, one_task, rising, write


def test_task_that_does_not_make_its_output(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"task make did not make qubo.json"):
        _ = run(rising(tmp_path, LOOP.replace('"make.sh", "{iteration}"', '"-c", "true"'))).result


def test_command_that_fails_names_its_task(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"(?s)task classical-1 on n1 exited with 3.*oh no"):
        _ = run(write(tmp_path, one_task("sh", "-c", "echo oh no >&2; exit 3"))).result


def test_payload_of_another_iteration_is_not_there(tmp_path: Path) -> None:
    text = LOOP.replace("qubo.json", "qubo-{iteration}.json")
    text = text.replace('name = "make"', 'name = "make"\nwhen = "before"')
    text = text.replace('"{shell}", "make.sh", "{iteration}"', '"touch", "qubo-{iteration}.json"')
    with pytest.raises(JobError, match=r"qubo-1.json is needed and no phase has made it"):
        _ = run(rising(tmp_path, text)).result


CONTENT = b'{"a": {"b": [1, 2.5]}, "text": "x", "yes": true}'


@pytest.mark.parametrize(
    ("key", "limit", "met"),
    [
        ("a.b.1", {"at_least": 2.5}, True),
        ("a.b.1", {"above": 2.5}, False),
        ("a.b.0", {"at_most": 1}, True),
        ("a.b.0", {"below": 1}, False),
        ("a.b.0", {"equals": 1}, True),
        ("a.b.0", {"equals": True}, False),
        ("yes", {"equals": True}, True),
        ("text", {"equals": "x"}, True),
        ("text", {"equals": "y"}, False),
    ],
)
def test_conditions(key: str, limit: dict[str, Any], met: bool) -> None:
    until = Until.model_validate({"file": "f", "key": key, **limit})
    assert is_met(until, "f", read_value(until, "f", CONTENT)) is met


@pytest.mark.parametrize(
    ("key", "content", "problem"),
    [
        ("a.c", CONTENT, r"f has no a.c \(there is: b\)"),
        ("a.b.7", CONTENT, "f has no a.b.7"),
        ("text", CONTENT, "text in f is 'x', not a number"),
        ("yes", CONTENT, "yes in f is True, not a number"),
        ("a", b"{", "f is not JSON"),
    ],
)
def test_conditions_that_cannot_be_judged(key: str, content: bytes, problem: str) -> None:
    until = Until.model_validate({"file": "f", "key": key, "at_least": 1})
    with pytest.raises(JobError, match=problem):
        is_met(until, "f", read_value(until, "f", content))
