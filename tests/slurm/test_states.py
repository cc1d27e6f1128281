"""What Slurm prints, read: states in words and lists, rows of several versions, node lists, whose a job is."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import pytest

from qloom.errors import InputError
from qloom.journal.event import Event
from qloom.journal.events import JobSubmitted, Requested, RunStarted, StillWaits
from qloom.model import QpuHold
from qloom.site import Qpu, Site, Slurm, site_from
from qloom.slurm.arguments import components, salloc
from qloom.slurm.squeue import REASONS, STATES, expand_hostlist, most_telling, read_jobs, read_state, reason_in_words
from qloom.slurm.tags import own_tag, read_tag
from qloom.views.explain import explain
from qloom.world import Request
from qloom.worlds.slurm.lease_jobs import Ceiling

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize(
    ("said", "name", "stage"),
    [
        ("RUNNING", "RUNNING", "holds"),  # squeue, and JSON up to 23.02
        (["RUNNING"], "RUNNING", "holds"),  # JSON from 23.11 on
        (["PENDING", "REQUEUED"], "PENDING", "waits"),
        (["RUNNING", "COMPLETING"], "COMPLETING", "ended"),
        (["COMPLETING", "TIMEOUT"], "TIMEOUT", "ended"),
        (["CANCELLED", "COMPLETING"], "CANCELLED", "ended"),
        (["RUNNING", "RESIZING"], "RUNNING", "holds"),
        ("CANCELLED by 1000", "CANCELLED", "ended"),  # sacct
        ("CANCELLED+", "CANCELLED", "ended"),  # sacct, cut short
        ("PREEMPTED", "PREEMPTED", "ended"),
    ],
)
def test_a_state_is_read_from_a_word_or_a_list(said, name, stage):
    assert (read_state(said).name, read_state(said).stage) == (name, stage)


def test_a_state_that_is_not_known_counts_as_held_so_that_nothing_is_given_up():
    assert read_state("NEW_STATE").stage == "holds"
    assert "NEW_STATE" in read_state("NEW_STATE").words


def test_every_state_and_reason_has_plain_words():
    assert all(state.words and not state.words.isupper() for state in STATES.values())
    assert all(words[0].islower() or words.startswith("Slurm") for words in REASONS.values())


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Priority", "ahead of it"),
        ("(Resources)", "others hold"),
        ("ReqNodeNotAvail, UnavailableNodes:c2", "down, drained or reserved"),
        ("SomethingNew", "Slurm says SomethingNew"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "drained"),
    ],
)
def test_a_pending_reason_is_told_in_words(reason, words):
    assert words in reason_in_words(reason)


@pytest.mark.parametrize(
    ("reasons", "most"),
    [
        (["Resources", "ReqNodeNotAvail, UnavailableNodes:q1"], 1),  # the QPU is drained
        (["Resources", "Resources"], 0),
        (["Priority", "Resources"], 1),
        (["None", "None"], 0),
        (["Dependency", "Priority"], 0),
    ],
)
def test_of_the_components_of_a_het_job_the_one_that_tells_most_is_told(reasons, most):
    assert most_telling(reasons) == most


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("(null)", []),
        ("c1", ["c1"]),
        ("c[1,3]", ["c1", "c3"]),
        ("nid[000008-000010,000020]", ["nid000008", "nid000009", "nid000010", "nid000020"]),
        ("gpu-a[01-02]-ib0,login3", ["gpu-a01-ib0", "gpu-a02-ib0", "login3"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_node_lists_are_written_out(text, names):
    assert expand_hostlist(text) == names


def test_rows_that_were_recorded_on_22_05():
    rows = {row.id: row for row in read_jobs((FIXTURES / "squeue-22.05.txt").read_text())}
    assert rows["94"].state.name == "CANCELLED"
    assert (rows["94"].start_s, rows["94"].end_s) == (1794787764, 1794787801)
    assert read_tag(rows["94"].comment).run == "20261116-000924-548299"
    assert rows["95"].nodes == ("c1", "c2")
    assert (rows["95"].name, rows["95"].comment, rows["95"].reason) == ("held", "a|b", "None")
    assert rows["97+1"].leader == "97"
    assert rows["97+1"].start_s is None
    assert rows["99"].reason == "Priority"


def test_lines_that_are_no_rows_are_passed_over():
    assert read_jobs("slurm_load_jobs error: Invalid job id specified\n\n") == []


def test_explain_tells_why_slurm_lets_a_job_wait():
    events: list[Event] = [
        RunStarted(n=0, version=1, world="slurm", jobs=1, strategy="offload"),
        JobSubmitted(n=1, job="j1"),
        Requested(n=2, job="j1", lease="j1.1", nodes=3, hold="task"),
    ]
    assert "it stands in the queue of Slurm" in "\n".join(explain(events))
    events.append(StillWaits(n=3, at_us=9, job="j1", lease="j1.1", reason=reason_in_words("Priority")))
    assert "for 3 nodes: others are ahead of it in the queue" in "\n".join(explain(events))


# Whose a job is


def test_a_tag_says_that_its_own_process_is_alive():
    tag = read_tag(own_tag("r1").comment)
    assert tag == own_tag("r1")
    assert not tag.is_dead()


@pytest.mark.parametrize(
    ("changed", "dead"),
    [
        ({"started": "1"}, True),  # the number was used again
        ({"boot": "another"}, True),
        ({"pid": "999999999"}, True),
        ({"host": "elsewhere"}, False),
        ({"host": "elsewhere", "pid": "999999999"}, False),
        ({"namespace": "1", "pid": "999999999"}, False),
    ],
)
def test_only_a_driver_that_is_known_to_have_ended_is_dead(changed, dead):
    assert replace(own_tag("r1"), **changed).is_dead() is dead


@pytest.mark.parametrize("host", [platform.node(), "elsewhere"])
def test_a_driver_that_was_submitted_ends_with_its_job_wherever_that_runs(host):
    tag = read_tag(replace(own_tag("r1", within="12"), host=host, pid="999999999").comment)
    assert tag.within == "12"
    assert not tag.is_dead(["11", "12"])
    assert tag.is_dead(["11"])


@pytest.mark.parametrize("comment", ["", "something else", "qloom", "qloom run=x host=login1 pid=4711"])
def test_jobs_of_others_have_no_tag(comment):
    assert read_tag(comment) is None


# What is asked for


def words(request, site=None, shares=8):
    return salloc(components(site or Site(), request, shares), "name", "comment")


def test_nodes_and_a_qpu_are_a_het_job_of_which_the_qpu_is_not_the_leader():
    site = Site(slurm=Slurm(partition="compute", account="proj", time_limit="30", arguments=("--mail-type=END",)))
    asked = words(Request("j1.1", "j1", 3, 3, QpuHold.WHOLE, "qpu"), site)
    leader, quantum = asked[: asked.index(":")], asked[asked.index(":") :]
    assert {"--partition=compute", "--nodes=3", "--exclusive"} < set(leader)
    assert {"--partition=quantum", "--gres=qpu:8", "--ntasks=1"} < set(quantum)
    assert "--exclusive" not in quantum
    for part in (leader, quantum):
        assert {"--account=proj", "--time=30", "--mail-type=END", "--comment=comment", "--job-name=name"} < set(part)


def test_growing_accepts_a_part_and_is_asked_for_with_the_same_options():
    site = Site(slurm=Slurm(account="proj"))
    asked = words(Request("j1.2", "j1", 1, 2), site)
    assert {"--nodes=1-2", "--account=proj"} < set(asked)
    assert ":" not in asked


def test_a_qpu_may_be_a_typed_gres_or_a_licence():
    request = Request("j1.1", "j1", 0, 0, QpuHold.SHARE, "b")
    two = Site(qpus=(Qpu(name="a"), Qpu(name="b")))
    assert "--gres=qpu:b:1" in words(request, two, 1)
    assert "--licenses=quantum:1" in words(request, replace(two, slurm=Slurm(licences="quantum")), 1)


def test_options_of_the_site_are_checked():
    assert site_from({"slurm": {"time_limit": "1:30:00", "arguments": ["-x", "c9"]}}).slurm.arguments == ("-x", "c9")
    for wrong in ({"polls": 3}, {"poll_s": 0}, {"most_node_hours": -1}, {"account": 3}):
        with pytest.raises(InputError, match="slurm"):
            site_from({"slurm": wrong})


class FakeClock:
    """Time that is set by hand."""

    def __init__(self):
        self.at_us = 0
        self.deadlines = []

    def now_us(self):
        return self.at_us

    def deadline(self, seconds, then):
        self.deadlines.append(entry := [self.at_us + seconds * 1e6, then])
        return lambda: self.deadlines.remove(entry)


def test_a_ceiling_is_reached_when_what_was_held_adds_up_to_it():
    clock, reached = FakeClock(), []
    ceiling = Ceiling(clock, 100.0, 10.0, lambda: reached.append(True))
    ceiling.change(3)
    assert [due for due, _ in clock.deadlines] == [30e6]  # 90 node-seconds are left, for three nodes
    clock.at_us = 20_000_000
    ceiling.change(-2)
    assert [due for due, _ in clock.deadlines] == [20e6 + 30e6]
    clock.at_us = 25_000_000
    ceiling.change(-1)
    assert clock.deadlines == []
    ceiling.change(5)
    ((due, then),) = clock.deadlines
    assert due == 25e6 + 5e6
    then()
    assert reached == [True]
