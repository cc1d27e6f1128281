"""The keystone: the same programs, under every strategy, in every world, with the same results and no leak."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from qloom.journal.file import FILE_NAME
from qloom.testing import WorldContract, programs
from qloom.testing.contracts import (
    check_candidate,
    check_failure,
    check_program,
    check_quantum_failure,
    check_refusals,
    check_resume,
    check_resume_of_a_finished_run,
    check_two_jobs,
    holds_qpu_throughout,
    run,
)
from tests.contract import HERE
from tests.journals import as_lines

STRATEGY_NAMES = list(WorldContract.strategies)
every_world = pytest.mark.parametrize("world", HERE)
every_strategy = pytest.mark.parametrize("strategy", STRATEGY_NAMES)


@every_world
@every_strategy
@pytest.mark.parametrize("program", programs.GOOD, ids=lambda program: program.__name__)
def test_same_result_everywhere_and_nothing_left(program, world, strategy):
    check_program(program, world, strategy)


@every_world
@every_strategy
def test_two_jobs_at_once_get_the_results_they_get_alone(world, strategy):
    check_two_jobs(world, strategy, **({"patience_s": 0.3} if strategy.startswith("malleable") else {}))


@every_world
def test_what_is_queued_ahead_is_granted_after_the_one_before_has_ended_or_withdrawn_before(world):
    outcome = run(programs.loop, world, "split", jobs=2, in_memory=True)
    assert outcome.errors == []
    place = {
        (event["event"], event["lease"]): n for n, event in enumerate(as_lines(outcome.events)) if "lease" in event
    }
    ahead = [event for event in as_lines(outcome.events) if event["event"] == "queued_ahead"]
    assert len(ahead) == 2 * (1 + 3), "one behind each sub-job"
    for event in ahead:
        lease, ended = event["lease"], place["released", event["after"]]
        if ("granted", lease) in place:
            assert ended < place["requested", lease] < place["granted", lease]
        else:
            assert ("requested", lease) not in place
            assert place["withdrawn", lease] < ended


@every_world
@every_strategy
def test_a_candidate_runs_classically_while_the_device_is_down(world, strategy):
    if holds_qpu_throughout(strategy):
        pytest.skip("this strategy holds a QPU before anything runs")
    check_candidate(world, strategy)


@every_world
@every_strategy
def test_a_failing_task_is_named_and_the_rest_is_released(world, strategy):
    check_failure(world, strategy)


@every_world
@every_strategy
def test_a_program_may_go_on_after_a_failed_quantum_task(world, strategy):
    check_quantum_failure(world, strategy)


@every_world
def test_what_no_world_can_do_is_refused(world):
    check_refusals(world)


def programs_to_cut():
    """All in virtual time; locally the loop under every strategy and each fifth other pair (QLOOM_PAIRS=all: all)."""
    for number, (program, strategy) in enumerate(itertools.product(programs.GOOD, STRATEGY_NAMES)):
        names = f"{program.__name__}-{strategy}"
        yield pytest.param(program, "virtual", strategy, id=f"{names}-virtual")
        if os.environ.get("QLOOM_PAIRS") == "all" or program is programs.loop or number % 5 == 0:
            yield pytest.param(program, "local", strategy, id=f"{names}-local", marks=pytest.mark.slow)


@pytest.mark.parametrize(("program", "world", "strategy"), list(programs_to_cut()))
def test_cut_off_anywhere_and_resumed(program, world, strategy):
    check_resume(program, world, strategy, cuts=None if world == "virtual" else 3)


@every_world
def test_resuming_a_finished_run_runs_nothing(world):
    check_resume_of_a_finished_run(world)


def test_strategies_that_hold_a_qpu_throughout():
    assert [name for name in STRATEGY_NAMES if holds_qpu_throughout(name)] == [
        "coschedule",
        "vqpu",
        "malleable+share",
    ]


def test_the_same_seed_gives_the_same_journal_byte_for_byte(tmp_path):
    journals = [
        (run(programs.loop, "virtual", strategy, jobs=2).directory / FILE_NAME).read_bytes()
        for strategy, _ in itertools.product(["malleable", "split"], range(2))
    ]
    assert journals[0] == journals[1]
    assert journals[2] == journals[3]


def test_everything_in_a_run_is_private():
    outcome = run(programs.sharing, "local", "offload")
    for path in [outcome.directory, *outcome.directory.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0 or not path.is_dir(), path
    assert outcome.directory.stat().st_mode & 0o777 == 0o700
    shared = list(Path(outcome.directory, "shared").iterdir())
    assert len(shared) == 1, "shared data is written once"
