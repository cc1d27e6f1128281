"""The budget of QPU-seconds of a run: it ends the run at that very moment, and the run can be resumed with more."""

from __future__ import annotations

import pytest

import qloom
from qloom.errors import BudgetSpent, InputError
from qloom.journal.events import QpuBudgetSpent
from qloom.journal.history import read_history
from qloom.strategies import STRATEGIES
from qloom.views.accounting import account

PROGRAM = """
from qloom import delay, task

@task(expected_s=2.0)
def square(x):
    return x * x

async def program(job):
    for n in range(4):
        await job.classical(square(n))
        await job.quantum(delay({seconds}, n))
    return "done"
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path / "home"))
    (tmp_path / "program.py").write_text(PROGRAM.format(seconds=3.0))
    (tmp_path / "quick.py").write_text(PROGRAM.format(seconds=0.2))
    return tmp_path


def held_s(outcome):
    return account(read_history(outcome.events)).qpu_s_held


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("jobs", [1, 2])
def test_the_run_ends_when_its_budget_is_spent(program, strategy, jobs):
    file = str(program / "program.py")
    outcome = qloom.run(file, world="virtual", strategy=strategy, jobs=jobs, most_qpu_s=7.0)
    assert [type(error) for error in outcome.errors] == [BudgetSpent] * jobs
    assert "the run has held its budget of 7 QPU-seconds (what is done is kept" in str(outcome.errors[0])
    assert held_s(outcome) == pytest.approx(7.0, abs=0.001)
    assert len([event for event in outcome.events if isinstance(event, QpuBudgetSpent)]) == 1
    resumed = qloom.resume("last", most_qpu_s=1000.0)
    assert resumed.results == ["done"] * jobs


def test_a_run_that_needs_just_its_budget_is_done(program):
    assert qloom.run(str(program / "program.py"), world="virtual", most_qpu_s=12.0).result == "done"


def test_what_was_held_before_counts_after_a_resume(program):
    qloom.run(str(program / "program.py"), world="virtual", most_qpu_s=7.0)
    again = qloom.resume("last", most_qpu_s=8.0)
    assert isinstance(again.errors[0], BudgetSpent)
    assert held_s(again) == pytest.approx(8.0, abs=0.001)
    kept = qloom.resume("last")
    assert "its budget of 8 QPU-seconds" in str(kept.errors[0]), "the budget of the resume was forgotten"


def test_on_this_machine(program):
    outcome = qloom.run(str(program / "quick.py"), most_qpu_s=0.3)
    assert isinstance(outcome.errors[0], BudgetSpent)
    assert qloom.resume("last", most_qpu_s=60.0).result == "done"


@pytest.mark.parametrize("most", [0.0, -1.0, float("nan")])
def test_a_budget_is_a_number_of_seconds(program, most):
    with pytest.raises(InputError, match="--most-qpu-s"):
        qloom.run(str(program / "program.py"), world="virtual", most_qpu_s=most)
