"""What a program computes itself counts: measured in real time, declared or taken from a profile in virtual time."""

from __future__ import annotations

import time

import pytest

import qloom
from qloom import delay, task
from qloom.errors import InputError
from qloom.journal.events import ProgramComputed, Resumed
from qloom.journal.file import read_events
from qloom.journal.history import read_history
from qloom.lab.advisor import advise
from qloom.lab.advisor.crowd import Waits
from qloom.lab.advisor.known import known_of
from qloom.lab.advisor.trial import run_trial
from qloom.programs.load import from_function
from qloom.runs.plan import Plan
from qloom.runs.runner import Execution
from qloom.views.accounting import account
from qloom.views.explain import explain


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path))


@task(expected_s=1.0)
def square(x):
    return x * x


def compute(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def optimiser(job):
    for n in range(3):
        job.classical(square(n))
        compute(0.05)


async def awaited_optimiser(job):
    for n in range(3):
        await job.classical(square(n))
        compute(0.05)


def used(outcome):
    return account(read_history(outcome.events))


@pytest.mark.parametrize("program", [optimiser, awaited_optimiser])
@pytest.mark.parametrize("jobs", [1, 2])
def test_it_is_measured_in_real_time_and_taken_from_a_profile_in_virtual_time(program, jobs):
    real = qloom.run(program, jobs=jobs)
    assert real.errors == []
    assert 0.15 * jobs <= used(real).program_s <= used(real).wall_s * jobs
    replayed = qloom.run(program, jobs=jobs, world="virtual", profile=real.run, in_memory=True)
    assert used(replayed).program_s == pytest.approx(used(real).program_s, abs=0.01)
    assert used(replayed).wall_s >= 0.15
    assert any("had its program compute" in line for line in explain(real.events, alive=False))


class Measured:
    """A profile in which the program computed for 4 s before each result, and for 2 s before each call."""

    measures_programs = True

    def seconds(self, work):
        return None

    def program_s(self, job, call, awaited):
        return 4.0 if awaited else 2.0 if call is not None else None

    def has(self, work):
        return False


def test_what_is_computed_beside_a_call_does_not_add_to_it():
    def program(job):
        answer = job.start_quantum(delay(10.0))  # after 2 s
        job.classical(square(1))  # from 4 s to 5 s
        answer.result()  # asked for at 9 s, there at 12 s

    trial = run_trial(Plan(from_function(program), world="virtual"), Measured(), Waits(), "seed")
    assert trial.turnaround_s == pytest.approx(12.0, abs=0.001)


def test_it_may_be_declared():
    def program(job):
        job.classical(square(1))
        job.spend(2.5)
        job.classical(square(2))

    async def awaited(job):
        await job.classical(square(1))
        await job.spend(2.5)
        await job.classical(square(2))

    outcomes = [qloom.run(one, world="virtual", in_memory=True) for one in (program, awaited)]
    for outcome in outcomes:
        assert outcome.events[-1].at_us == 4_500_000
        assert used(outcome).program_s == 2.5
        assert used(outcome).node_s_held == 3 * 4.5  # offload keeps its nodes meanwhile
    assert used(qloom.run(program, in_memory=True)).program_s < 1.0  # in real time it is measured


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "2", None])
def test_wrong_declarations_are_refused(seconds):
    with pytest.raises(InputError, match=r"expected seconds to spend.*job\.spend"):
        _ = qloom.run(lambda job: job.spend(seconds), world="virtual", in_memory=True).result


def test_declared_time_is_not_spent_again_after_a_resume():
    def program(job):
        job.spend(2.5)
        job.spend(2.5)
        job.spend(1.0)

    outcome = qloom.run(program, world="virtual")
    journal = outcome.directory / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:4]))  # killed after both
    events = read_events(outcome.directory)
    assert [type(event) for event in events[2:]] == [ProgramComputed] * 2
    plan = Plan(from_function(program), world="virtual")
    resumed = Execution(plan, outcome.directory, None, None, events).go(0, events[-1].at_us, 4, Resumed(), {})
    assert resumed.errors == []
    assert used(resumed).program_s == 6.0
    assert resumed.events[-1].at_us == 6_000_000


def test_advice_counts_it():
    def program(job, declared):
        for n in range(2):
            job.classical(square(n))
            job.spend(declared)

    busy, idle = (
        advise(
            Plan(from_function(program), {"declared": declared}, world="virtual"), strategies=["offload"], samples=2
        )
        for declared in (10.0, 0.0)
    )
    assert busy.estimates[0].wall_s.mean == pytest.approx(idle.estimates[0].wall_s.mean + 20.0, abs=0.01)
    real = qloom.run(optimiser)
    plan = Plan(from_function(optimiser), world="virtual")
    advice = advise(plan, known=known_of("", real.run), strategies=["offload"], samples=2)
    assert advice.estimates[0].wall_s.mean > 0.1  # the tasks took nothing to speak of
