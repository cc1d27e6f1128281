"""The contract on a real Slurm: the same programs under every strategy, with the same results and no leak."""

from __future__ import annotations

import pytest

from qloom.strategies import STRATEGIES
from tests.contract import programs
from tests.contract import test_contract as contract
from tests.contract import test_regressions as regressions

pytestmark = pytest.mark.slow
on_the_testbed = pytest.mark.usefixtures("empty_cluster")
every_strategy = pytest.mark.parametrize("strategy", contract.STRATEGY_NAMES)


@pytest.fixture
def empty_cluster(slurm_env):
    """A cluster that is as empty after a test as it was before."""
    yield slurm_env
    assert slurm_env.run("squeue", "-h", "-o", "%i %j %T") == "", "a test has left jobs behind"


SIMPLE = [programs.three_at_once, programs.candidate, programs.sharing]  # strategies make little difference to them
ALL_PROGRAMS = [
    (program, strategy)
    for program in programs.GOOD
    for strategy in (["malleable"] if program in SIMPLE else STRATEGIES)
]
OTHER_HOLDS = [(programs.loop, strategy) for strategy in contract.STRATEGY_NAMES if strategy not in STRATEGIES]


@on_the_testbed
@pytest.mark.parametrize(("program", "strategy"), [*ALL_PROGRAMS, *OTHER_HOLDS])
def test_same_result_everywhere_and_nothing_left(program, strategy):
    contract.test_same_result_everywhere_and_nothing_left(program, "slurm", strategy)


@on_the_testbed
@every_strategy
def test_two_jobs_at_once_get_the_results_they_get_alone(strategy):
    contract.test_two_jobs_at_once_get_the_results_they_get_alone("slurm", strategy)


@on_the_testbed
@every_strategy
def test_a_candidate_runs_classically_while_the_device_is_down(strategy):
    contract.test_a_candidate_runs_classically_while_the_device_is_down("slurm", strategy)


@on_the_testbed
@every_strategy
def test_a_failing_task_is_named_and_the_rest_is_released(strategy):
    contract.test_a_failing_task_is_named_and_the_rest_is_released("slurm", strategy)


@on_the_testbed
@pytest.mark.parametrize(
    ("program", "error"), [(programs.no_qubo, contract.PayloadError), (programs.too_wide, contract.NeedError)]
)
def test_what_no_world_can_do_is_refused(program, error):
    contract.test_what_no_world_can_do_is_refused(program, error, "slurm")


@on_the_testbed
@pytest.mark.parametrize("strategy", ["malleable", "split"])
def test_cut_off_anywhere_and_resumed(strategy, tmp_path):
    contract.test_cut_off_anywhere_and_resumed(programs.loop, "slurm", strategy, tmp_path)


@on_the_testbed
def test_resuming_a_finished_run_runs_nothing():
    contract.test_resuming_a_finished_run_runs_nothing("slurm")


@on_the_testbed
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_qpu_that_will_not_come_back_fails_every_job_and_blocks_none(strategy):
    regressions.test_a_qpu_that_will_not_come_back_fails_every_job_and_blocks_none("slurm", strategy)


@on_the_testbed
def test_a_device_that_is_too_small_says_both_sizes():
    regressions.test_a_device_that_is_too_small_says_both_sizes("slurm")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_centre_s_policies_change_nothing(strategy, strict_slurm_env):
    contract.test_same_result_everywhere_and_nothing_left(programs.loop, "slurm", strategy)
    assert strict_slurm_env.run("squeue", "-h", "-o", "%i %j %T") == ""
