"""Answers carry the calibration of their device; the user decides what a run does when that changes."""

from __future__ import annotations

import json

import pytest

import qloom
from qloom import qubo
from qloom.errors import CalibrationChanged, InputError
from qloom.journal.events import QuantumEnded, QuantumStarted, Recalibrated, Resumed
from qloom.journal.file import FILE_NAME, read_events
from qloom.journal.history import read_history
from qloom.views.explain import explain

HOUR_S = 3600.0
PROGRAM = """
from pathlib import Path
from qloom import qubo

def program(job):
    answers = [job.quantum(qubo({("a", "a"): -1.0 - k}, seconds=1.0)) for k in range(2)]
    if not Path(__file__).with_name("go on").exists():
        raise ValueError("killed here")
    answers += [job.quantum(qubo({("a", "a"): -1.0 - k}, seconds=1.0)) for k in range(2, 4)]
    return [answer.calibration for answer in answers]
"""


async def ask(job, tasks: int = 4):
    answers = [await job.quantum(qubo({("a", "a"): -1.0 - k}, seconds=10.0)) for k in range(tasks)]
    return [answer.calibration for answer in answers]


def ask_in_turn(job):
    return [job.quantum(qubo({("a", "a"): -1.0 - k}, seconds=10.0)).calibration for k in range(4)]


def circuits(job):
    circuit = 'OPENQASM 3.0; include "stdgates.inc"; qubit[1] q; bit[1] c; x q[0]; c = measure q;'
    return [answer.calibration for answer in job.quantum([circuit, circuit], shots=10)]


def site(technology="annealer", **window):
    return {"qpus": [{"name": "ann", "technology": technology, "calibration": [window] if window else []}]}


def recalibrated_after(seconds, **more):
    return qloom.site.site_from(site(first_s=seconds, for_s=5.0, every_s=1e6, **more))


def events_of(outcome, kind):
    return [event for event in outcome.events if isinstance(event, kind)]


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path / "home"))
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_answers_of_a_run_across_a_recalibration_say_so_and_the_run_warns():
    outcome = qloom.run(ask, world="virtual", site=recalibrated_after(15.0), in_memory=True)
    assert outcome.result == ["c0", "c0", "c1", "c1"]  # the second one began before and ran through it
    assert [event.calibration for event in events_of(outcome, QuantumEnded)] == outcome.result
    (changed,) = events_of(outcome, Recalibrated)
    assert (changed.device, changed.was, changed.now, changed.action) == ("ann", "c0", "c1", "warn")
    words = (
        "QPU ann was recalibrated during the run: its answers from quantum task 3 (qubo) of job j1 on are of "
        "calibration c1, those before of c0"
    )
    assert outcome.notes == [words]
    assert any(words in line for line in explain(outcome.events))
    assert read_history(outcome.events).run.calibrations == {"ann": {"c0": 2, "c1": 2}}


@pytest.mark.parametrize("strategy", ["offload", "coschedule", "vqpu", "weave"])
def test_a_run_can_continue_silently(strategy):
    outcome = qloom.run(
        ask,
        world="virtual",
        strategy=strategy,
        site=recalibrated_after(15.0),
        on_recalibration="continue",
        in_memory=True,
    )
    assert outcome.result == ["c0", "c0", "c1", "c1"]
    assert outcome.notes == []
    assert [event.action for event in events_of(outcome, Recalibrated)] == ["continue"]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("program", [ask, ask_in_turn])
def test_a_run_can_stop_and_gives_everything_back(program, jobs):
    outcome = qloom.run(
        program,
        world="virtual",
        jobs=jobs,
        strategy="vqpu",
        site=recalibrated_after(15.0),
        on_recalibration="stop",
        in_memory=True,
    )
    assert [type(error) for error in outcome.errors] == [CalibrationChanged] * jobs
    assert "of calibration c1, those before of c0" in str(outcome.errors[0])
    assert "qloom resume --on-recalibration continue" in str(outcome.errors[0])
    assert [event.action for event in events_of(outcome, Recalibrated)] == ["stop"]
    intervals = read_history(outcome.events).intervals
    assert intervals
    assert all(interval.state != "open" for interval in intervals)
    assert len(events_of(outcome, QuantumStarted)) < 4 * jobs


def test_the_last_answer_stops_a_run_too():
    outcome = qloom.run(
        ask,
        world="virtual",
        parameters={"tasks": 3},
        site=recalibrated_after(15.0),
        on_recalibration="stop",
        in_memory=True,
    )
    assert [type(error) for error in outcome.errors] == [CalibrationChanged]


def test_a_stopped_run_stops_again_until_the_user_accepts_it_and_nothing_runs_twice(program):
    program.with_name("go on").touch()
    where = qloom.site.site_from(site(first_s=1.5, for_s=0.5, every_s=1e6))
    stopped = qloom.run(str(program), world="virtual", site=where, on_recalibration="stop")
    assert isinstance(stopped.errors[0], CalibrationChanged)
    again = qloom.resume("last")  # as it was begun
    assert str(again.errors[0]) == str(stopped.errors[0])
    assert len(events_of(again, QuantumStarted)) == 3
    resumed = qloom.resume("last", on_recalibration="continue")
    assert resumed.result == ["c0", "c0", "c1", "c1"]
    assert len(events_of(resumed, QuantumStarted)) == 4
    assert [event.on_recalibration for event in events_of(resumed, Resumed)] == [None, "continue"]


def test_every_circuit_of_a_task_has_the_calibration():
    where = qloom.site.site_from(site("superconducting", first_s=1e5, for_s=5.0, every_s=1e6))
    assert qloom.run(circuits, world="virtual", site=where, in_memory=True).result == ["c0", "c0"]


def test_a_device_without_windows_has_none():
    outcome = qloom.run(ask, world="virtual", in_memory=True)
    assert outcome.result == [None] * 4
    assert all("calibration" not in event.as_dict() for event in events_of(outcome, QuantumEnded))


def begun_an_hour_earlier(directory) -> None:
    """Change a journal into that of a run that has stood still for an hour."""
    first, *rest = (directory / FILE_NAME).read_text().splitlines()
    start = json.loads(first)
    start["epoch_us"] -= round(HOUR_S * 1e6)
    (directory / FILE_NAME).write_text("\n".join([json.dumps(start), *rest]) + "\n")


@pytest.fixture
def stopped(program):
    """A local run that failed after two answers, and whose device is recalibrated half an hour later."""
    where = qloom.site.site_from(site(first_s=HOUR_S / 2, for_s=1.0, every_s=1e6))
    outcome = qloom.run(str(program), site=where)
    assert "killed here" in str(outcome.errors[0])
    begun_an_hour_earlier(outcome.directory)
    program.with_name("go on").touch()
    return outcome


WORDS = (
    "QPU ann was recalibrated before the run was resumed: its answers from quantum task 1 (qubo) of job j1 on are of "
    "calibration c0, new ones are of c1"
)


def test_a_resume_after_a_recalibration_warns(stopped):
    resumed = qloom.resume(stopped.run)
    assert resumed.result == ["c0", "c0", "c1", "c1"]  # those of the journal keep theirs
    assert resumed.notes == [WORDS]
    assert [event.resumed for event in events_of(resumed, Recalibrated)] == [True]  # once


def test_a_resume_after_a_recalibration_can_stop_before_anything_runs(stopped):
    refused = qloom.resume(stopped.run, on_recalibration="stop")
    assert [error.message for error in refused.errors] == [WORDS]
    assert len(events_of(refused, QuantumStarted)) == 2
    still = qloom.resume(stopped.run)  # as the user last said
    assert isinstance(still.errors[0], CalibrationChanged)
    accepted = qloom.resume(stopped.run, on_recalibration="continue")
    assert (accepted.result, accepted.notes) == (["c0", "c0", "c1", "c1"], [])


def test_a_journal_without_calibrations_is_resumed_as_before(stopped):
    path = stopped.directory / FILE_NAME
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.pop("calibration", None)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    resumed = qloom.resume(stopped.run, on_recalibration="stop")
    assert resumed.result == [None, None, "c1", "c1"]
    assert events_of(resumed, Recalibrated) == []
    assert read_events(stopped.directory)


def test_only_three_answers_are_known(program):
    with pytest.raises(InputError, match=r"'maybe'.*warn, stop or continue"):
        qloom.run(str(program), world="virtual", on_recalibration="maybe")
    qloom.run(str(program), world="virtual")
    with pytest.raises(InputError, match=r"'maybe'.*warn, stop or continue"):
        qloom.resume("last", on_recalibration="maybe")


@pytest.mark.parametrize(
    ("window", "complaint"),
    [
        ({"at": "03:00", "for_s": 60}, "seconds of the run"),
        ({"for_s": 60, "every": 3600}, "has no 'every'"),
        ({"for_s": 60, "every_s": 60}, "leaves no time to run"),
    ],
)
def test_a_wrong_window_of_a_site_is_refused(window, complaint):
    with pytest.raises(InputError, match=complaint):
        qloom.site.site_from(site(**window))
