"""Quantum phases of job files: payloads, stand-ins, and files that hold no QUBO."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dimod
import pytest

from qloom.errors import PayloadError
from qloom.jobfile.files import read_qubo, write_sample
from qloom.model import Sample
from qloom.runs.runner import run
from qloom.site import Qpu, Site
from tests.journals import as_lines
from tests.unit.jobfile.examples import CANDIDATE, LONE_QUBO, calls, work_directory, write


def test_payload_from_an_input_file_is_solved_in_every_world(tmp_path: Path) -> None:
    model = dimod.BinaryQuadraticModel({"x": 1, "y": -1}, {("x", "y"): 2}, 0, "SPIN")
    text = """
        name = "input"
        files = ["problem.json"]
        [[phase]]
        kind = "quantum"
        payload = "problem.json"
        result = "answer.json"
    """
    path = write(tmp_path, text, problem_json=json.dumps(model.to_serializable()))
    outcome = run(path)
    assert outcome.result["iterations"] == 1
    answer = json.loads((work_directory(outcome) / "answer.json").read_text())
    assert answer == {"sample": {"x": 0, "y": 1}, "energy": -4.0}
    virtual = run(path, world="virtual", in_memory=True)
    assert calls(virtual) == calls(outcome)


@pytest.mark.parametrize("offline", [True, False])
def test_classical_command_stands_in_for_the_device(tmp_path: Path, offline: bool) -> None:
    path = write(tmp_path, CANDIDATE, qubo_json=json.dumps(LONE_QUBO))
    site = Site(qpus=(Qpu(offline=offline),))
    outcome = run(path, site=site)
    value, iterations = (-7, 1) if offline else (-1.0, 2)
    assert outcome.result == {"iterations": iterations, "converged": offline, "value": value, "output": "."}
    assert json.loads((work_directory(outcome) / "sample.json").read_text())["energy"] == value
    virtual = run(path, site=site, world="virtual", profile=str(outcome.directory), in_memory=True)
    assert virtual.result == outcome.result


def test_command_that_uses_the_device_itself(tmp_path: Path) -> None:
    text = """
        name = "own"
        [loop]
        max_iterations = 3
        until = { file = "out/answer.json", key = "qpus.0", equals = "cold" }
        [[phase]]
        kind = "quantum"
        command = ["sh", "{source}/ask.sh"]
        expected_s = 0.02
        outputs = ["out/answer.json"]
    """
    path = write(tmp_path, text, ask_sh='mkdir -p out; echo "{\\"qpus\\": [\\"$QLOOM_QPU\\"]}" > out/answer.json')
    site = Site(qpus=(Qpu(name="cold", technology="trapped-ion"),))
    outcome = run(path, site=site)
    assert outcome.result == {"iterations": 1, "converged": True, "value": "cold", "output": "."}
    assert [event["device"] for event in as_lines(outcome.events) if event["event"] == "quantum_started"] == ["cold"]
    virtual = run(path, site=site, world="virtual", profile=str(outcome.directory), in_memory=True)
    assert virtual.result == outcome.result
    without = run(path, site=site, world="virtual", in_memory=True)
    assert without.result["iterations"] == 3
    assert without.events[-1].as_dict()["at_us"] == 60_000


def test_qubo_file_forms_agree() -> None:
    options: dict[str, Any] = {"shots": 7, "seconds": None, "device": "q"}
    simple = {"linear": {"0": -1}, "quadratic": [[0, "1", 2], ["1", "1", 3], [1, 0, 1]], "offset": 1}
    payload = read_qubo("f", json.dumps(simple).encode(), **options)
    assert payload.body == {"linear": [["0", -1.0], ["1", 3.0]], "quadratic": [["0", "1", 3.0]], "offset": 1.0}
    assert (payload.shots, payload.device) == (7, "q")
    model = dimod.BinaryQuadraticModel({"0": -1, "1": 3}, {("0", "1"): 3}, 1, "BINARY")
    serialised = read_qubo("f", json.dumps(model.to_serializable()).encode(), **options).body
    assert {tuple(entry) for entry in serialised["linear"]} == {("0", -1.0), ("1", 3.0)}
    assert serialised["offset"] == 1.0
    assert json.loads(write_sample(Sample({1: 0, "b": 1}, -2.0))) == {"sample": {"1": 0, "b": 1}, "energy": -2.0}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("not json", "is not JSON"),
        ("[1, 2]", "a table is needed"),
        ("{}", "it has no variables"),
        ('{"linear": {"a": 1}, "cubic": []}', "'cubic' is not a known key"),
        ('{"linear": [["a", 1]]}', "linear must be a table"),
        ('{"quadratic": [["a", "b"]]}', "is not \\[variable, variable, bias\\]"),
        ('{"quadratic": [["a", "b", "1"]]}', "'1' is not a finite number"),
        ('{"linear": {"a": NaN}}', "nan is not a finite number"),
        ('{"linear": {"a": 1}, "offset": true}', "True is not a finite number"),
        (f'{{"linear": {{"a": 1{"0" * 400}}}}}', "is not a finite number"),
        ('{"type": "BinaryQuadraticModel"}', "dimod cannot read it"),
        (json.dumps(dimod.BinaryQuadraticModel("SPIN").to_serializable()), "it has no variables"),
        (json.dumps(dimod.BQM({1: 1, "1": 1}, {}, "SPIN").to_serializable()), "the same name as text"),
    ],
)
def test_payload_that_is_no_qubo(content: str, problem: str) -> None:
    with pytest.raises(PayloadError, match=f"qubo.json .*{problem}"):
        read_qubo("qubo.json", content.encode(), shots=1, seconds=None, device=None)


def test_run_with_a_payload_that_is_no_qubo_is_an_input_error(tmp_path: Path) -> None:
    path = write(tmp_path, CANDIDATE, qubo_json="{}")
    with pytest.raises(PayloadError, match=r"qubo.json is no QUBO: it has no variables"):
        _ = run(path, world="virtual", in_memory=True).result
