"""A resumed program is compared with its journal, call by call; the user decides whether it may differ."""

from __future__ import annotations

import pytest

import qloom
from qloom.errors import InputError, ProgramChanged
from qloom.journal.events import Called, Diverged, TaskStarted

PROGRAM = """
import random
import numpy
from qloom import command, task

@task(expected_s=1.0)
def evaluate(x, weight=1.0):
    return x * weight

def program(job):
    if {fails}:
        job.classical(evaluate(0.5))
    values = [job.classical(evaluate(x, weight=2.0))[0] for x in {points}]
    if {fails}:
        raise ValueError("killed here")
    return values
"""
DRAWN = "[round(float(value), 3) for value in (numpy.random.rand(), random.random(), job.random.random())]"


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path / "home"))
    path = tmp_path / "program.py"

    def write(**values):
        path.write_text(PROGRAM.format(**{"fails": True, "points": "[1.0, 2.0]"} | values))
        return str(path)

    return write


def test_a_resumed_program_draws_the_same_random_numbers(program):
    assert qloom.run(program(points=DRAWN), world="virtual", seed=7).errors
    resumed = qloom.resume("last")
    assert "killed here" in str(resumed.errors[0])
    assert len([event for event in resumed.events if isinstance(event, TaskStarted)]) == 4  # none of them twice


def test_the_first_call_that_differs_is_named_with_both_contents(program):
    qloom.run(program(), world="virtual")
    program(points="[1.0, 2.5, 3.0]")
    with pytest.raises(ProgramChanged) as refused:
        _ = qloom.resume("last").result
    assert refused.value.message == (
        "call 3 differs from the journal: it was classical: evaluate(2.0, weight=2.0), "
        "and is now classical: evaluate(2.5, weight=2.0)"
    )
    assert "--on-divergence continue" in str(refused.value)


def test_a_program_that_makes_fewer_calls_differs_too(program):
    qloom.run(program(), world="virtual")
    program(points="[]", fails=False)
    with pytest.raises(ProgramChanged, match=r"it was classical\(evaluate.*the program no longer makes it"):
        _ = qloom.resume("last").result


def test_the_user_may_let_it_continue_and_the_journal_says_so(program):
    first = qloom.run(program(), world="virtual")
    program(points="[1.0, 2.5]")
    second = qloom.resume("last", on_divergence="continue")
    assert "killed here" in str(second.errors[0])
    (diverged,) = (event for event in second.events if isinstance(event, Diverged))
    assert (diverged.order, diverged.now) == (2, "classical(evaluate(2.5, weight=2.0))")
    assert any("differs from its journal: call 3 was" in note for note in second.notes)
    starts = [event.work for event in second.events if isinstance(event, TaskStarted)]
    assert len(starts) == len(set(starts)) == 4  # three then, and only what is new now
    third = qloom.resume("last")  # what it differed in once is no difference any more
    assert "killed here" in str(third.errors[0])
    assert len([event for event in third.events if isinstance(event, Called)]) == 4
    assert first.errors


def test_only_two_answers_are_known(program):
    qloom.run(program(), world="virtual")
    with pytest.raises(InputError, match=r"'maybe'.*stop or continue"):
        qloom.resume("last", on_divergence="maybe")
