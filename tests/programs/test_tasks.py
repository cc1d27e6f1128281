"""Retries and time limits of tasks, in virtual time and on this machine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import qloom
from qloom import call, command, task
from qloom.errors import InputError, TaskFailed
from qloom.journal.events import TaskEnded
from qloom.programs.load import from_function
from qloom.runs.plan import Plan
from qloom.site import Site
from qloom.testing.simulation import simulate
from qloom.worlds.virtual.world import InjectedFaults


@task(expected_s=5.0, time_limit_s=2.0, stand_in=lambda: "late")
def slow():
    time.sleep(60.0)


@task(expected_s=1.0, retries=2)
def third_time(counter):
    tries = Path(counter)
    tries.write_text(tries.read_text() + "x")
    if len(tries.read_text()) < 3:
        raise ValueError("not yet")
    return "done"


def ends(outcome):
    return [event.state for event in outcome.events if isinstance(event, TaskEnded)]


@pytest.mark.parametrize("world", ["virtual", "local"])
def test_a_task_that_runs_for_too_long_is_killed(world):
    limited = slow().needs(time_limit_s=2.0 if world == "virtual" else 0.3)
    outcome = qloom.run(lambda job: job.classical(limited), world=world, in_memory=True)
    with pytest.raises(TaskFailed, match=r"task slow was killed at its time limit of .*raise its time_limit_s"):
        _ = outcome.result
    assert ends(outcome) == ["failed"]
    if world == "virtual":
        assert outcome.events[-1].at_us == 2_000_000


def test_a_task_that_takes_just_its_limit_is_done():
    outcome = qloom.run(lambda job: job.classical(slow().needs(time_limit_s=5.0)), world="virtual", in_memory=True)
    assert outcome.result == ["late"]


def test_a_command_has_a_limit_too():
    outcome = qloom.run(lambda job: job.classical(command("sleep", "60").needs(time_limit_s=0.3)), in_memory=True)
    with pytest.raises(TaskFailed, match="sleep was killed at its time limit"):
        _ = outcome.result


@pytest.mark.parametrize("world", ["virtual", "local"])
def test_a_task_that_fails_is_retried(world, tmp_path):
    counter = tmp_path / "tries"
    counter.write_text("")
    outcome = qloom.run(lambda job: job.classical(third_time(str(counter))), world=world, in_memory=True)
    assert outcome.result == ["done"]
    assert ends(outcome) == ["failed", "failed", "done"]
    counter.write_text("")
    outcome = qloom.run(
        lambda job: job.classical(third_time(str(counter)).needs(retries=1)), world=world, in_memory=True
    )
    with pytest.raises(TaskFailed, match="not yet"):
        _ = outcome.result


def test_retries_get_over_injected_faults():
    async def program(job):
        return await job.classical(*(call(abs, -n).needs(expected_s=1.0, retries=1) for n in range(5)))

    plan = Plan(from_function(program), world="virtual")
    found = simulate([plan], Site(), faults=InjectedFaults(task_rate=1.0))
    assert found.outcomes == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("needs", [{"retries": -1}, {"time_limit_s": 0.0}, {"time_limit_s": float("nan")}])
def test_wrong_limits_are_refused(needs):
    with pytest.raises(InputError, match=next(iter(needs))):
        call(abs, 1).needs(**needs)
