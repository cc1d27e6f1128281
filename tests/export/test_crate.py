"""Runs as research objects."""

from __future__ import annotations

import json

import pytest

import qloom
from qloom.errors import InputError
from qloom.export.crate import write_crate
from tests.export.crates import require_sound, require_valid
from tests.journals import as_lines

JOB = """name = "job"
files = ["data.txt"]
[[phase]]
kind = "classical"
name = "count"
[[phase.task]]
command = ["sh", "-c", "wc -l data.txt > count.txt"]
outputs = ["count.txt"]
"""


@pytest.mark.parametrize("strategy", ["workflow", "weave"])
def test_a_run_of_any_strategy_becomes_a_crate(tmp_path, strategy):
    outcome = qloom.run("phases", strategy=strategy, world="virtual", parameters={"iterations": 2})
    crate = write_crate(outcome.run, tmp_path / "crate")
    found = require_sound(crate)
    quantum = [entity for name, entity in found.items() if name.startswith("#action-") and "location" in entity]
    ended = [event for event in as_lines(outcome.events) if event["event"] == "quantum_ended"]
    assert len(quantum) == len(ended) > 0
    assert found["#run"]["actionStatus"].endswith("CompletedActionStatus")
    assert found["#parameter-iterations"]["value"] == 2
    assert (crate / "journal.jsonl").read_text().count("\n") == len(outcome.events)


def test_a_job_file_brings_its_inputs_and_outputs(tmp_path):
    (tmp_path / "data.txt").write_text("7\n")
    (tmp_path / "job.toml").write_text(JOB)
    outcome = qloom.run(str(tmp_path / "job.toml"))
    found = require_sound(write_crate(outcome.run, tmp_path / "crate"))
    assert {"@id": "inputs/data.txt"} in found["#run"]["object"]
    assert {"@id": "outputs/j1/count.txt"} in found["#run"]["result"]
    assert found["job.toml"]["programmingLanguage"] == {"@id": "#language"}


def test_names_that_look_alike_are_kept_apart(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text(folder)
    copying = """[[phase]]
kind = "classical"
name = "copy{mark}it"
[[phase.task]]
command = ["cp", "{folder}/x.txt", "{folder} copied.txt"]
outputs = ["{folder} copied.txt"]
"""
    phases = copying.format(mark=" ", folder="a") + copying.format(mark="-", folder="b")
    (tmp_path / "job.toml").write_text(f'name = "job"\nfiles = ["a/x.txt", "b/x.txt"]\n{phases}')
    outcome = qloom.run(str(tmp_path / "job.toml"))
    crate = write_crate(outcome.run, tmp_path / "crate")
    found = require_sound(crate)
    assert {"inputs/a/x.txt", "inputs/b/x.txt", "outputs/j1/a%20copied.txt"} <= set(found)
    assert (crate / "inputs" / "b" / "x.txt").read_text() == "b"
    tools = {entity["name"] for name, entity in found.items() if name.startswith("#tool-")}
    assert tools == {"copy it", "copy-it"}


def test_a_failed_run_says_why(tmp_path):
    (tmp_path / "job.toml").write_text(
        'name = "job"\n[[phase]]\nkind = "classical"\nname = "bad"\n[[phase.task]]\ncommand = ["false"]\n'
    )
    outcome = qloom.run(str(tmp_path / "job.toml"))
    assert outcome.errors
    found = require_sound(write_crate(outcome.run, tmp_path / "crate"))
    assert found["#run"]["actionStatus"].endswith("FailedActionStatus")
    assert "bad" in json.dumps(found["#run"]["error"])


@pytest.mark.slow
def test_a_validator_has_nothing_to_say(tmp_path):
    (tmp_path / "data.txt").write_text('{"linear": {"a": -1}}')
    ask = '[[phase]]\nkind = "quantum"\nname = "ask"\npayload = "data.txt"\nresult = "answer.json"\n'
    fail = '[[phase]]\nkind = "classical"\nname = "fail"\n[[phase.task]]\ncommand = ["false"]\n'
    (tmp_path / "job.toml").write_text(JOB + ask + fail)
    outcome = qloom.run(str(tmp_path / "job.toml"))
    states = [
        event["state"] for event in as_lines(outcome.events) if event["event"] in ("task_ended", "quantum_ended")
    ]
    assert states == ["done", "done", "failed"]
    require_valid(write_crate(outcome.run, tmp_path / "crate"))


def test_nothing_is_written_over(tmp_path):
    outcome = qloom.run("phases", world="virtual", parameters={"iterations": 1})
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        write_crate(outcome.run, tmp_path)
