"""Every parser of Slurm's output, held against what Slurm 22.05, 24.11 and 26.05 print (`fixtures/VERSION.json`)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from qloom.broker import slurm as broker
from qloom.lab.advisor.slurm import is_up, read_ended, read_standing
from qloom.slurm.commands import Answer
from qloom.slurm.facts import SlurmNode, read_default_partition, read_gres, read_licences, read_nodes
from qloom.slurm.salloc import _GRANTED, _IN_LINE
from qloom.slurm.squeue import REASONS, STATES, QueuedJob, read_jobs, read_state, reason_in_words

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = ("22.05", "24.11", "26.05")
HELD, WAITING, ENDED = "holds", "waits", "ended"


class Recording:
    """What one version printed."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.kept = json.loads((FIXTURES / f"{version}.json").read_text())

    def __getitem__(self, name: str) -> Answer:
        entry = self.kept[name]
        return Answer(entry["code"], "\n".join(entry["stdout"]), "\n".join(entry["stderr"]))

    @property
    def jobs(self) -> dict[str, list[QueuedJob]]:
        """The jobs of `squeue`, by name."""
        found: dict[str, list[QueuedJob]] = {}
        for job in read_jobs(self["squeue"].stdout):
            found.setdefault(job.name, []).append(job)
        return found


@pytest.fixture(params=VERSIONS)
def recorded(request) -> Recording:
    return Recording(request.param)


def test_a_recording_is_of_the_version_that_it_is_named_after(recorded):
    assert recorded["version"].stdout.startswith(f"slurm-wlm {recorded.version}.")


@pytest.mark.parametrize(
    ("name", "state", "stage"),
    [
        ("plain", "RUNNING", HELD),
        ("resized", "RUNNING", HELD),
        ("suspended", "SUSPENDED", HELD),
        ("held", "PENDING", WAITING),
        ("requeued", "PENDING", WAITING),
        ("stubborn", "COMPLETING", ENDED),
        ("fail", "FAILED", ENDED),
        ("lost", "NODE_FAIL", ENDED),
        ("limited", "TIMEOUT", ENDED),
    ],
)
def test_states_of_jobs(recorded, name, state, stage):
    (job,) = recorded.jobs[name]
    assert (job.state.name, job.state.stage) == (state, stage)


def test_columns_of_jobs(recorded):
    (plain,) = recorded.jobs["plain"]
    assert (plain.comment, plain.reason, plain.nodes) == ("a|b", "None", ("c1",))
    assert plain.end_s - plain.start_s == 3600
    (held,) = recorded.jobs["held"]
    assert (held.comment, held.start_s, held.end_s, held.nodes) == ("", None, None, ())
    assert all(job.nodes for jobs in recorded.jobs.values() for job in jobs if job.state.stage == HELD)


def test_components_of_a_het_job_have_one_leader_and_states_of_their_own(recorded):
    classical, quantum = recorded.jobs["het"]
    assert classical.leader == quantum.leader == classical.id.removesuffix("+0") == quantum.id.removesuffix("+1")
    assert (classical.nodes, quantum.nodes) == (("c1", "c2"), ("q1",))
    assert (classical.state.name, quantum.state.name) == ("RUNNING", "CANCELLED")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("held", "JobHeldUser"),
        ("depends", "Dependency"),
        ("big", "Resources"),
        ("behind", "Priority"),
        ("requeued", "BeginTime"),
        ("needs-c3", "ReqNodeNotAvail, UnavailableNodes:c3"),
    ],
)
def test_reasons_of_pending_jobs_have_plain_words(recorded, name, reason):
    (job,) = recorded.jobs[name]
    assert job.reason == reason
    assert reason_in_words(reason) in REASONS.values()


def test_lines_without_a_job_are_no_jobs(recorded):
    unknown = recorded["squeue-unknown-job"]
    assert read_jobs(unknown.stdout) == read_jobs(unknown.stderr) == []
    assert unknown.says_gone


# One table of states


def test_every_state_that_a_version_has_is_in_the_table(recorded):
    if recorded.version == "22.05":
        pytest.skip("this version has no squeue --helpstate")
    assert {state.upper() for state in recorded["squeue-states"].stdout.split()} <= set(STATES)


def test_the_table_has_no_state_that_no_version_has():
    assert set(STATES) == {state.upper() for state in Recording("26.05")["squeue-states"].stdout.split()}


def test_json_and_columns_mean_the_same_stage(recorded):
    columns = {job.id: job.state for jobs in recorded.jobs.values() for job in jobs}
    as_json = {id: read_state(said) for id, said in recorded.kept["squeue-json-states"].items()}
    both = columns.keys() & as_json.keys()
    assert len(both) > 12
    short = recorded.jobs["short"][0].id  # it ended between the two calls
    assert [id for id in both if id != short and columns[id].stage != as_json[id].stage] == []


def test_accounting_says_how_jobs_ended(recorded):
    said = [line.split("|") for line in recorded["sacct-states"].stdout.splitlines()]
    states = {job: read_state(state).name for job, state in said}
    by_name = {name: states.get(jobs[0].id) for name, jobs in recorded.jobs.items()}
    assert by_name["fail"] == "FAILED"
    assert by_name["limited"] == "TIMEOUT"
    assert by_name["plain"] == "RUNNING"
    assert states[recorded.jobs["het"][1].id] == "CANCELLED", "it is printed as CANCELLED by UID"
    assert "RESIZING" in [state for job, state in said if job == recorded.jobs["resized"][0].id]


def test_the_broker_sorts_states_as_the_table_does():
    assert set(broker.ENDED) == {state.name for state in STATES.values() if state.stage == ENDED}
    assert {STATES[name].stage for name in broker.HOLD} == {HELD}


def test_the_broker_reads_holdings(recorded):
    holdings = {part.id: part for part in broker.read_holdings(recorded["squeue-broker"].stdout)}
    quantum = holdings[recorded.jobs["quantum"][0].id]
    assert (quantum.state, quantum.shares("qpu", "qpu", alone=True)) == ("RUNNING", 2)
    het = recorded.jobs["het"][0].leader
    assert [part.state for part in holdings.values() if part.job == het] == ["RUNNING", "CANCELLED"]


# What a cluster has


def test_nodes_and_shares(recorded):
    nodes = read_nodes(recorded["sinfo-facts"].stdout)
    assert [node.name for node in nodes] == ["c1", "c2", "c3", "q1"]
    assert nodes[0] == SlurmNode("c1", "compute", 8, 4000, "(null)")
    assert [read_gres(node.gres, "qpu") for node in nodes] == [[], [], [], [8]]
    assert read_default_partition(recorded["sinfo-partitions"].stdout) == "compute"
    assert read_licences(recorded["licenses"].stdout) == {"run": 4}


# What the advisor reads


def test_the_advisor_reads_the_queue(recorded):
    lines = recorded["squeue-advisor"].stdout.splitlines()
    submitted = [int(line.rpartition("|")[2]) for line in lines]
    jobs = read_standing(lines, max(submitted) + 100.0)
    assert [job.state for job in jobs] == sorted((job.state for job in jobs), reverse=True)
    assert (jobs[0].limit_s, jobs[0].nodes, jobs[0].state) == (3600.0, 1, "running")
    assert 0 < jobs[0].elapsed_s < 200
    assert all(job.submit_s <= -100 for job in jobs)


def test_the_advisor_reads_the_past(recorded):
    jobs = read_ended(recorded["sacct-advisor"].stdout.splitlines(), 2e9)
    assert len(jobs) > 5
    assert 60.0 < min(job.limit_s for job in jobs if job.limit_s < 100) < 100, "a limit of a minute, exceeded"
    assert {job.nodes for job in jobs} == {1, 2}


def test_the_advisor_sees_which_nodes_are_up(recorded):
    states = [line.split("|")[0] for line in recorded["sinfo-advisor"].stdout.splitlines()]
    assert [is_up(state) for state in states] == [True, True, False]


# Requests


@pytest.mark.parametrize("name", ["salloc", "salloc-het"])
def test_a_grant_is_announced_with_the_id_of_the_job(recorded, name):
    said = recorded[name].stderr
    granted = [found[1] for line in said.splitlines() if (found := _GRANTED.search(line))]
    assert len(granted) == 1
    assert {found[1] for found in _IN_LINE.finditer(said)} == set(granted)


def test_a_refusal_is_read_without_the_name_of_the_command(recorded):
    refused = recorded["sbatch-gres-refused"]
    assert refused.code == 1
    assert refused.complaint == "Batch job submission failed: Requested node configuration is not available"
    assert recorded["sbatch-test-only"].code == 0
    assert re.search(r"to start at \d+", recorded["sbatch-test-only"].stderr)
