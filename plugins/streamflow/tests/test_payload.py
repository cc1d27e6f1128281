"""How the command line of a quantum step is read as a payload."""

from __future__ import annotations

import json

import pytest
from streamflow.core.exception import WorkflowExecutionException

from qloom_streamflow.payload import answer, read_step


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "q.json").write_text(json.dumps({"linear": {"a": -1}, "quadratic": [["a", "b", 2]]}))
    return tmp_path


def test_a_qubo_becomes_what_the_broker_takes(folder):
    words = [
        "qloom",
        "step",
        "quantum",
        "q.json",
        "a.json",
        "--shots",
        "7",
        "--",
        "python3",
        "greedy.py",
        "--shots",
        "9",
    ]
    step = read_step("ask", words, str(folder))
    assert step.form["body"]["linear"] == [["a", -1], ["b", 0.0]]
    assert (step.form["kind"], step.form["shots"]) == ("qubo", 7)
    assert step.result == folder / "a.json"
    assert not step.empty


def test_an_envelope_is_sent_as_it_is(folder):
    sent = {"kind": "qubo", "body": {"linear": [["a", 1.0]], "quadratic": []}, "shots": 3, "options": {"seed": 5}}
    (folder / "e.json").write_text(json.dumps(sent))
    assert read_step("ask", ["qloom", "step", "quantum", "e.json", "a.json"], str(folder)).form == sent


def test_nothing_to_ask_is_not_sent(folder):
    (folder / "e.json").write_text('{"kind": "qubo", "body": {"linear": [], "quadratic": []}}')
    assert read_step("ask", ["qloom", "step", "quantum", "e.json", "a.json"], str(folder)).empty


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["python3", "solve.py"], "takes payloads, not shell commands such as 'python3'"),
        (["qloom", "step", "quantum", "none.json", "a.json"], "its payload cannot be read"),
        (["qloom", "step", "quantum", "q.json"], "its payload cannot be read"),
    ],
)
def test_what_is_no_payload_is_refused_in_one_line(folder, words, why):
    with pytest.raises(WorkflowExecutionException, match=why) as refused:
        read_step("ask", words, str(folder))
    assert "\n" not in str(refused.value)


def test_the_answer_is_the_best_sample():
    told = {"form": "samples", "values": [["a", 1], ["b", 0]], "energy": -1.0, "samples": []}
    assert json.loads(answer(told)) == {"sample": {"a": 1, "b": 0}, "energy": -1.0}
    assert json.loads(answer({"counts": {"00": 3}})) == {"counts": {"00": 3}}
