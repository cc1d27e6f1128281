"""What a job file does in each world, how it is replayed, and how it is resumed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from qloom.journal.file import FILE_NAME, read_events
from qloom.programs.load import load_program
from qloom.runs.resume import resume
from qloom.runs.runner import run
from tests.journals import as_lines
from tests.unit.jobfile.examples import (
    LOOP,
    LOOP_RESULT,
    RAN,
    Recorded,
    calls,
    one_task,
    rising,
    work_directory,
    write,
)


def test_local_loop_ends_when_its_condition_is_met(recorded: Recorded) -> None:
    path, outcome = recorded
    assert outcome.result == LOOP_RESULT
    directory = work_directory(outcome)
    assert json.loads((directory / "sample.json").read_text()) == {"sample": {"a": 1, "b": 1}, "energy": -5.0}
    assert (directory / "ran.log").read_text().splitlines() == RAN
    assert sorted(entry.name for entry in Path(path).parent.iterdir()) == ["job.toml", "make.sh", "score.sh"]


def test_virtual_time_runs_nothing_and_goes_to_the_limit(tmp_path: Path) -> None:
    path = rising(tmp_path, LOOP.replace("expected_s = 0.01", "expected_s = 5"))
    outcome = run(path, world="virtual", in_memory=True)
    assert outcome.result == {"iterations": 4, "converged": False, "value": None, "output": "."}
    assert outcome.events[-1].as_dict()["at_us"] == 4 * 8_000_000
    assert outcome.notes == []
    (note,) = load_program(path).notes_on(outcome.results)
    assert "commands do not run in virtual time" in note
    assert not (tmp_path / "home").exists()


def test_unknown_payload_takes_the_time_of_the_device(tmp_path: Path) -> None:
    path = rising(tmp_path, LOOP.replace("expected_s = 0.01", "").replace("shots = 5", "shots = 1000"))
    outcome = run(path, world="virtual", in_memory=True)
    assert outcome.events[-1].as_dict()["at_us"] == pytest.approx(4 * (3 + 0.031 + 1000 * 86e-6) * 1e6)


@pytest.mark.parametrize("strategy", ["coschedule", "workflow", "malleable", "split"])
def test_profile_takes_the_same_path_without_running_commands(recorded: Recorded, strategy: str) -> None:
    path, real = recorded
    replayed = run(path, world="virtual", profile=str(real.directory), strategy=strategy, in_memory=True)
    assert load_program(path).notes_on(replayed.results) == []
    assert replayed.result == LOOP_RESULT
    assert calls(replayed) == calls(real)
    assert (work_directory(real) / "ran.log").read_text().splitlines() == RAN


def test_loop_ends_at_its_limit(recorded: Recorded, tmp_path: Path) -> None:
    path = rising(tmp_path, LOOP.replace("max_iterations = 4", "max_iterations = 2"))
    outcome = run(path, world="virtual", profile=str(recorded[1].directory), in_memory=True)
    assert outcome.result == {"iterations": 2, "converged": False, "value": 3, "output": "."}


def test_phases_before_and_after_the_loop(tmp_path: Path) -> None:
    phases = "".join(
        f"""
        [[phase]]
        kind = "classical"
        when = "{when}"
        [[phase.task]]
        command = ["sh", "-c", "echo {when} {{iteration}} {{word}} {{{{}}}} >> log"]
        """
        for when in ("after", "loop", "before")
    )
    path = write(tmp_path, f'name = "three"\nparameters = {{ word = "x" }}\n[loop]\nmax_iterations = 2\n{phases}')
    outcome = run(path, parameters={"word": "y"}, jobs=2)
    assert outcome.results == [{"iterations": 2, "converged": False, "value": None, "output": "."}] * 2
    for job in ("j1", "j2"):  # a work directory each
        lines = (work_directory(outcome, job) / "log").read_text().splitlines()
        assert lines == ["before 0 y {}", "loop 1 y {}", "loop 2 y {}", "after 2 y {}"]


def test_tasks_of_a_phase_are_one_call(tmp_path: Path) -> None:
    second = '[[phase.task]]\nname = "second"\ncommand = ["true"]\n'
    outcome = run(write(tmp_path, one_task("true", more=second)), world="virtual", in_memory=True)
    assert [event["names"] for event in as_lines(outcome.events) if event["event"] == "called"] == [
        ["classical-1-1", "second"]
    ]
    assert outcome.result == {"iterations": 1, "converged": False, "value": None, "output": "."}


# Resume


@pytest.mark.parametrize(
    ("ended", "stale"), [(4, None), (8, '{"energy": -99}')], ids=["files are gone", "files are of another moment"]
)
def test_resume_in_the_middle(recorded: Recorded, tmp_path: Path, ended: int, stale: str | None) -> None:
    _, whole = recorded
    directory = tmp_path / "copy"
    shutil.copytree(whole.directory or "", directory)
    ends = [event for event in as_lines(whole.events) if event["event"] in ("task_ended", "quantum_ended")]
    lines = (directory / FILE_NAME).read_text().splitlines(keepends=True)
    (directory / FILE_NAME).write_text("".join(lines[: ends[ended - 1]["n"] + 1]))
    work = directory / "output" / "j1"
    (work / "ran.log").unlink()
    for name in ("qubo.json", "sample.json", "score.json"):
        (work / name).unlink() if stale is None else (work / name).write_text(stale)

    assert resume(str(directory)).result == LOOP_RESULT

    known = sum(event["event"] == "task_ended" for event in ends[:ended])
    assert (work / "ran.log").read_text().splitlines() == RAN[known:]
    for name in ("qubo.json", "sample.json", "score.json"):
        assert (work / name).read_bytes() == (work_directory(whole) / name).read_bytes()
    assert read_events(directory)[-1].as_dict()["state"] == "done"
