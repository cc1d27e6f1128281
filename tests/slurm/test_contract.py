"""The contract on a real Slurm: the same programs under every strategy, with the same results and no leak.

Strategies go side by side as the jobs of one run, on a cluster with room for all of them: that takes the time of the
slowest. `test_drivers.py` has the same with drivers that live in Slurm.
"""

from __future__ import annotations

import pytest

import qloom
from qloom.errors import QuantumFailed, TaskFailed
from qloom.journal.history import read_history
from qloom.site import Qpu, Site
from qloom.strategies import STRATEGIES
from qloom.testing import contracts as contract
from qloom.testing import programs
from qloom.views.accounting import account
from tests.contract import test_regressions as regressions
from tests.journals import as_lines
from tests.slurm.driver import left

pytestmark = pytest.mark.slow
on_the_testbed = pytest.mark.usefixtures("empty_cluster")
STRATEGY_NAMES = list(contract.WorldContract.strategies)
DOWN = Site(qpus=(Qpu(offline=True),))
HOLD_A_QPU_FIRST = ("coschedule", "vqpu", "malleable+share")
EITHER = {programs.candidate: [[None, 4], [36, 4]]}  # side by side, the QPU may be busy: then it is the other one
every_program = pytest.mark.parametrize("program", programs.GOOD, ids=lambda program: program.__name__)


@pytest.fixture
def empty_cluster(wide_slurm_env):
    """A cluster that is as empty after a test as it was before."""
    yield wide_slurm_env
    assert left(wide_slurm_env) == {}, "a test has left jobs behind"


def run(program, strategies, jobs=0, **plan):
    """One job for each strategy, side by side."""
    names = ",".join(strategies)
    return qloom.run(
        programs.source(program), world="slurm", strategy=names, jobs=jobs or len(strategies), in_memory=True, **plan
    )


def check_same_results_and_nothing_left(program, outcome, strategies):
    assert outcome.errors == []
    for number, result in enumerate(outcome.results):
        strategy = strategies[number % len(strategies)]
        assert result in EITHER.get(program, [contract.expected(program)]), strategy
        events = [event for event in outcome.events if event.job in ("", f"j{number + 1}")]
        history = read_history(events)
        assert all(interval.state != "open" for interval in history.intervals), strategy
        figures = account(history)
        assert 0 < figures.node_s_busy <= figures.node_s_held, strategy
        if strategy not in HOLD_A_QPU_FIRST:
            assert figures.qpu_s_held >= figures.qpu_s_busy - 1e-6, strategy


@on_the_testbed
@every_program
def test_same_result_everywhere_and_nothing_left(program):
    outcome = run(program, STRATEGY_NAMES)
    check_same_results_and_nothing_left(program, outcome, STRATEGY_NAMES)


@on_the_testbed
def test_jobs_that_wait_for_each_other_get_the_results_they_get_alone():
    """Two of each strategy, which want three times the nodes that there are."""
    names = STRATEGY_NAMES
    outcome = run(programs.loop, names, jobs=2 * len(names))
    check_same_results_and_nothing_left(programs.loop, outcome, names)


@on_the_testbed
def test_a_candidate_runs_classically_while_the_device_is_down():
    strategies = [name for name in STRATEGY_NAMES if name not in HOLD_A_QPU_FIRST]
    outcome = run(programs.candidate, strategies, site=DOWN)
    assert outcome.results == [[36, 4]] * len(strategies)
    choices = [event for event in as_lines(outcome.events) if event["event"] == "candidate"]
    assert [choice["choice"] for choice in choices] == ["classical"] * len(strategies)
    assert all("not available" in choice["reason"] for choice in choices)


@on_the_testbed
def test_a_failing_task_is_named_and_the_rest_is_released():
    outcome = run(programs.fails_late, STRATEGY_NAMES)
    assert [error.job for error in outcome.errors] == [f"j{n + 1}" for n in range(len(STRATEGY_NAMES))]
    for error in outcome.errors:
        assert isinstance(error, TaskFailed)
        assert "fails" in error.message
        assert "no luck" in error.message
    assert all(interval.state != "open" for interval in read_history(outcome.events).intervals)
    for error in outcome.errors:
        events = [event for event in as_lines(outcome.events) if event.get("job") == error.job and "work" in event]
        failed = next(number for number, event in enumerate(events) if event.get("state") == "failed")
        began_us = {event["work"]: event["at_us"] for event in events if event["event"].endswith("_started")}
        # Long ones that were done before may have gone first: a malleable job may have had one node.
        done = [event for event in events[failed:] if event.get("state") == "done"]
        assert all(event["at_us"] - began_us[event["work"]] < 30e6 for event in done), "a long task was waited for"


@on_the_testbed
def test_what_no_world_can_do_is_refused():
    contract.check_refusals("slurm")


@on_the_testbed
@pytest.mark.parametrize("strategy", ["malleable", "split"])
def test_cut_off_anywhere_and_resumed(strategy):
    contract.check_resume(programs.loop, "slurm", strategy, cuts=3)


@on_the_testbed
def test_resuming_a_finished_run_runs_nothing():
    contract.check_resume_of_a_finished_run("slurm")


@on_the_testbed
def test_a_qpu_that_will_not_come_back_fails_every_job_and_blocks_none():
    outcome = run(programs.three_at_once, STRATEGIES, jobs=2 * len(STRATEGIES), site=DOWN)
    assert len(outcome.errors) == 2 * len(STRATEGIES)
    assert all(isinstance(error, QuantumFailed) for error in outcome.errors)
    assert all(interval.state != "open" for interval in read_history(outcome.events).intervals)


@on_the_testbed
def test_a_device_that_is_too_small_says_both_sizes():
    regressions.test_a_device_that_is_too_small_says_both_sizes("slurm")


@every_program
def test_a_centre_s_policies_change_nothing(program, strict_slurm_env):
    outcome = run(program, STRATEGIES)
    check_same_results_and_nothing_left(program, outcome, list(STRATEGIES))
    assert left(strict_slurm_env) == {}
