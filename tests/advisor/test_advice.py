"""What is advised, and from what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qloom import call, delay, task
from qloom.errors import InputError, NeedError
from qloom.lab.advisor import FALLBACK, advise
from qloom.lab.advisor.crowd import Queue, Seen, Waits
from qloom.lab.advisor.known import Known, known_of
from qloom.lab.advisor.trial import run_trial
from qloom.programs.load import from_function, load_program
from qloom.runs.runner import Plan, execute
from qloom.site import Overheads, Site
from qloom.strategies import STRATEGIES

# What one engine of the QCE25 paper takes: mpirun 1.7 s, an expand 2 s, 5.4 s before each step of its workflow.
PAPER = Overheads(submit_s=5.4, tick_s=1.0, worker_start_s=1.7, grow_s=2.0, queue_call_s=1.3)


def phases(nodes: int = 3, overheads: Overheads = Overheads(), **parameters) -> Plan:
    return Plan(load_program("phases"), parameters, world="virtual", site=Site(nodes=nodes, overheads=overheads))


def test_nodes_that_come_at_once_are_given_back_and_nodes_that_do_not_are_kept():
    plan = phases(classical_s=[60.0, 60.0, 60.0], score_s=0.0, quantum_s=60.0)
    at_once = advise(plan, strategies=["vqpu", "workflow"])
    after_an_hour = advise(plan, crowd=Waits(3600.0), strategies=["vqpu", "workflow"])
    assert (at_once.strategy, after_an_hour.strategy) == ("workflow", "vqpu")


@pytest.mark.parametrize(("ratio", "expected"), [(0.02, "vqpu"), (0.3, "malleable"), (5.0, "workflow")])
def test_the_three_rules_of_the_slides(ratio, expected):
    """On 16 nodes of an idle cluster: vQPU for long classical phases, workflow for long quantum ones."""
    plan = phases(16, PAPER, classical_s=[77.0] * 16, score_s=0.0, quantum_s=77 * ratio)
    assert advise(plan, strategies=["vqpu", "malleable", "workflow"], samples=4).strategy == expected


def test_the_value_of_time_decides():
    plan = phases(quantum_s=30.0)
    cheap = advise(plan, crowd=Waits(60.0), value_node_s=0.0, samples=8)
    soon = advise(plan, crowd=Waits(60.0), value_node_s=1e6, samples=8)
    by_name = {estimate.strategy: estimate for estimate in cheap.estimates}
    assert by_name[cheap.strategy].node_s.mean <= 1.01 * min(each.node_s.mean for each in cheap.estimates)
    assert by_name[soon.strategy].wall_s.mean <= 1.01 * min(each.wall_s.mean for each in soon.estimates)
    assert cheap.strategy != soon.strategy


def test_among_equals_the_qpu_is_left_to_others():
    advice = advise(phases(), strategies=["coschedule", "offload"])
    assert advice.strategy == "offload"
    assert advice.estimates[1].dearer == pytest.approx(0.0)


def test_the_same_question_has_the_same_answer():
    assert advise(phases(), crowd=Waits(20.0)) == advise(phases(), crowd=Waits(20.0))


def test_what_is_hopeless_is_tried_less_and_still_told():
    advice = advise(phases(quantum_s=600.0))
    trials = {estimate.strategy: estimate.trials for estimate in advice.estimates}
    assert trials["vqpu"] == 8 < trials[advice.strategy]
    assert len(trials) == len(STRATEGIES)


def test_of_strategies_that_cost_the_same_one_is_tried_further():
    advice = advise(phases(quantum_s=0.1), strategies=["coschedule", "offload", "vqpu"], samples=30)
    trials = {estimate.strategy: estimate.trials for estimate in advice.estimates}
    assert advice.strategy == "vqpu"
    assert trials == {"coschedule": 8, "offload": 8, "vqpu": 8}, "nothing is left to find out"


def test_no_strategy_is_tried_more_often_than_asked():
    advice = advise(phases(quantum_s=60.0), strategies=["malleable", "weave", "workflow"], samples=11)
    assert max(estimate.trials for estimate in advice.estimates) == 11


def test_intervals_hold_the_mean_and_expectations_are_trusted_less_than_measurements():
    plan = phases(quantum_s=1.0, classical_s=[0.1], score_s=0.0, iterations=1)
    execute(plan)
    expected = advise(plan, strategies=["offload"]).estimates[0].wall_s
    measured = advise(plan, known=known_of("", "last"), strategies=["offload"]).estimates[0].wall_s
    assert expected.low < expected.mean < expected.high
    assert measured.high - measured.low < (expected.high - expected.low) / 2


RUNS: list[int] = []


@task(expected_s=30.0)
def counted(number):
    RUNS.append(number)
    return number


async def loop(job):
    for number in range(3):
        await job.classical(counted(number))
        await job.quantum(delay(5.0))


def test_each_task_is_computed_once_however_many_trials_there_are():
    RUNS.clear()
    advise(Plan(from_function(loop), world="virtual"))
    assert RUNS == [0, 1, 2]


@task(expected_s=1000.0)
def quicker_than_thought():
    return 1


async def pessimist(job):
    await job.classical(quicker_than_thought())
    await job.quantum(delay(0.01))


def test_what_was_measured_counts_more_than_what_was_expected():
    plan = Plan(from_function(pessimist), world="local")
    execute(plan)
    known = known_of(plan.program.source)
    assert advise(plan, strategies=["offload"]).estimates[0].wall_s.mean > 500
    assert advise(plan, known=known, strategies=["offload"]).estimates[0].wall_s.mean < 50


def test_runs_in_virtual_time_have_measured_nothing():
    plan = phases()
    execute(plan)
    assert not known_of(plan.program.source).measured
    assert known_of("", "last").measured  # but one that is named is believed


async def unknown(job):
    await job.classical(call(pow, 2, 3))


def test_without_durations_it_abstains_and_names_a_default():
    advice = advise(Plan(from_function(unknown), world="virtual"))
    assert advice.strategy == FALLBACK
    assert advice.abstains == "nothing says how long pow takes"


def test_a_task_without_expectation_takes_what_tasks_of_its_name_took():
    execute(Plan(from_function(unknown), world="local"))
    advice = advise(Plan(from_function(unknown), world="virtual"), known=known_of("", "last"))
    assert advice.abstains is None


async def wide(job):
    await job.classical(counted(1).needs(nodes=9))


def test_what_no_strategy_can_do_is_told_as_it_is():
    with pytest.raises(NeedError):
        advise(Plan(from_function(wide), world="virtual", site=Site(nodes=3)))


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_value_that_is_none(value):
    with pytest.raises(InputError, match="a second is worth"):
        advise(phases(), value_node_s=value)
    with pytest.raises(InputError, match="a wait is a finite number"):
        Waits(value)


# The queue


def test_a_job_waits_for_those_who_hold_the_nodes():
    past = [Seen(1, 100.0, -50.0, 100.0, "ended")]  # jobs run as long as they may
    full = Queue(4, 3600.0, [Seen(4, 100.0, -40.0, 40.0, "running")], past, interval_s=1.0)
    plan = replace(phases(iterations=1), strategy="offload")
    alone = run_trial(plan, None, Queue(4, 3600.0), "x")
    behind = run_trial(plan, None, full, "x")
    assert behind.turnaround_s - alone.turnaround_s == pytest.approx(60.0, abs=1.0)
    assert behind.node_s == pytest.approx(alone.node_s)


def test_those_who_came_before_are_expected_again():
    came = [
        Seen(4, 60.0, -float(at), 60.0, "ended") for at in range(570, 0, -30)
    ]  # twice as much as there is room for
    busy = Queue(4, 3600.0, (), came, 600.0, interval_s=1.0)
    plan = replace(phases(iterations=4), strategy="workflow")
    alone = run_trial(plan, None, Queue(4, 3600.0), "x")
    assert run_trial(plan, None, busy, "x").turnaround_s > 2 * alone.turnaround_s


def test_a_queue_without_a_past_ends_well_for_every_strategy():
    queue = Queue(4, 600.0, [Seen(2, 100.0, -1.0, 0.0, "running"), Seen(4, 50.0)])
    advice = advise(phases(iterations=2), crowd=queue, samples=2)
    assert len(advice.estimates) == len(STRATEGIES)
    assert not advice.notes


def test_the_queue_of_the_qpu_is_waited_for_at_each_call():
    plan = replace(phases(iterations=2), strategy="vqpu")
    short = run_trial(plan, None, Waits(), "x", Known())
    long = run_trial(plan, None, Waits(), "x", Known(), qpu_wait_s=7.0)
    assert long.turnaround_s - short.turnaround_s == pytest.approx(14.0)
