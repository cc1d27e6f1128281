"""What campaigns need of the program, the strategies and the virtual world."""

from __future__ import annotations

import pytest

import qloom
from qloom.errors import InputError
from qloom.journal import home
from qloom.journal.file import read_events
from qloom.journal.history import read_history
from qloom.runs.plan import plan_of
from qloom.site import Overheads, Qpu, Site
from qloom.views.accounting import account
from tests.campaign.helpers import results, write

SHORT = {"classical_s": [4.0], "score_s": 0.0, "quantum_s": 2.0, "iterations": 1}


def history(**plan):
    plan = {"world": "virtual", "in_memory": True, **plan}
    return read_history(qloom.run("phases", **plan).events)


def test_jobs_arrive_one_after_the_other():
    found = history(parameters={**SHORT, "arrivals_s": [0, 30]}, jobs=2)
    begins = {job: min(i.begin_us for i in found.intervals if i.job == job) for job in found.jobs}
    assert begins == {"j1": 0, "j2": 30_000_000}


def test_jobs_take_lengths_and_devices_in_turn():
    site = Site(qpus=(Qpu(name="iqm"), Qpu(name="pasqal")))
    parameters = {**SHORT, "quantum_s": [1.0, 9.0], "devices": ["iqm", "pasqal"]}
    found = history(parameters=parameters, jobs=3, site=site)
    ran = {i.job: (i.resource, i.seconds) for i in found.intervals if i.kind == "quantum"}
    assert ran == {"j1": ("iqm", 1.0), "j2": ("pasqal", 9.0), "j3": ("iqm", 1.0)}


def test_jitter_is_decided_by_the_seed_alone():
    parameters = {**SHORT, "jitter": 0.2}

    def lengths(seed, strategy):
        found = history(parameters=parameters, seed=seed, strategy=strategy)
        return [i.seconds for i in found.intervals if i.kind in ("task", "quantum")]

    assert lengths(1, "offload") == lengths(1, "workflow")
    assert lengths(1, "offload") != lengths(2, "offload")
    assert lengths(1, "offload") != [4.0, 2.0]


def test_a_workflow_can_hold_more_nodes_than_a_phase_needs():
    usual, three = (
        account(history(parameters=SHORT, strategy="workflow", options=options)).node_s_held
        for options in ({}, {"phase_nodes": 3})
    )
    assert (usual, three) == (4.0, 12.0)


def test_a_submission_takes_time_but_holds_nothing():
    site = Site(overheads=Overheads(submit_s=10.0))
    used = account(history(parameters=SHORT, strategy="workflow", site=site))
    assert used.node_s_held == 4.0
    assert used.wall_s == 4.0 + 10.0 + 2.0  # the gap before the first phase comes before anything is held


def test_a_block_gives_its_qpu_back_while_a_submission_takes_longer_than_its_patience():
    """And keeps its place in line for the nodes."""

    async def program(job):
        async with job.quantum_block():
            await job.quantum(qloom.delay(1.0))
            await job.classical(qloom.call(pow, 2, 3).needs(expected_s=1.0))

    site = Site(overheads=Overheads(submit_s=10.0))
    outcome = qloom.run(program, strategy="workflow", world="virtual", in_memory=True, site=site)
    assert outcome.errors == []
    names = [event.event for event in outcome.events]
    assert "withdrawn" not in names
    (returned,) = [event for event in outcome.events if event.event == "qpu_released"]
    assert returned.at_us == (10 + 1 + 5) * 10**6, "the grant, the quantum task, the patience"


@pytest.mark.parametrize(("options", "begins_s"), [({}, 37.0), ({"renew_patience": 1}, 39.0)])
def test_a_partial_grant_starts_the_patience_anew_if_that_is_wanted(options, begins_s):
    """Job 1 leaves two of three nodes at 32 s; job 2 takes one, has grown by the other at 34 s, and wants a third."""
    parameters = {"classical_s": [30, 30, 30], "quantum_s": 60, "score_s": 0, "iterations": 1, "arrivals_s": [0, 3]}
    site = Site(overheads=Overheads(grow_s=2.0))
    found = history(parameters=parameters, jobs=2, strategy="malleable", options=options, site=site)
    tasks = [interval for interval in found.intervals if interval.kind == "task" and interval.job == "j2"]
    assert min(task.begin_us for task in tasks) == begins_s * 1e6
    assert sorted({node for task in tasks for node in task.resources}) == ["n2", "n3"], "it went on with what it had"


def test_a_job_may_hold_a_part_of_the_cluster():
    found = history(parameters=SHORT, jobs=2, site=Site(nodes=1, cluster_nodes=2))
    assert sorted({node for i in found.intervals if i.kind == "node" for node in i.resources}) == ["n1", "n2"]
    assert account(found).wall_s < 10.0, "both jobs run at once"


def test_a_cell_whose_jobs_hold_a_part_of_the_cluster_can_be_planned_again(tmp_path):
    text = '[base]\nnodes = 2\njob_nodes = 1\njobs = 2\n[matrix]\nstrategy = ["offload"]\n'
    (result,) = results(write(tmp_path, 'title = "Two halves"\n' + text)).results
    again = plan_of(read_events(home.find_run(result.runs[0])), "it").site
    assert (again.nodes, again.node_names) == (1, ["n1", "n2"])


def test_wrong_lengths_are_refused():
    with pytest.raises(InputError, match="jitter must be"):
        qloom.run("phases", parameters={"jitter": -1.0}, world="virtual", in_memory=True)
