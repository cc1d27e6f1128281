"""The world `slurm` on a real cluster: what it asks for, what it gives back, and what accounting says of it."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict

import pytest

import qloom
from qloom.errors import InputError
from qloom.journal.history import read_history
from qloom.programs.load import load_program
from qloom.runs.runner import Plan
from qloom.runs.submit import submit
from qloom.site import Site, Slurm
from qloom.strategies import STRATEGIES
from qloom.views.accounting import account
from tests.journals import as_lines
from tests.slurm import programs
from tests.slurm.driver import QLOOM, ended, left, queue, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(slurm_env):
    """A cluster that is as empty after a test as it was before."""
    yield slurm_env
    assert left(slurm_env) == {}, "a test has left jobs behind"


def run(program, **plan):
    return qloom.run(programs.source(program), world="slurm", in_memory=True, **plan)


def sacct(testbed, ids):
    """Node-seconds of each Slurm job, all its phases (a resized job has several), once all have ended."""

    def ended():
        fields = "JobID,State,NNodes,ElapsedRaw"
        said = testbed.run("sacct", "-D", "-X", "-n", "-P", "-j", ",".join(ids), "-o", fields)
        rows = [line.split("|") for line in said.splitlines()]
        known = {row[0].partition("+")[0] for row in rows}
        return rows if known >= set(ids) and not any(row[1] in ("RUNNING", "PENDING") for row in rows) else None

    rows = wait_until(ended, "the end of all jobs in accounting")
    states = {row[0]: row[1] for row in rows}  # of a job that was resized, the last counts
    node_s, phases = defaultdict(float), defaultdict(int)
    for job, _, nodes, seconds in rows:
        if "+" not in job or job.endswith("+0"):  # the other component is the QPU's
            node_s[job.partition("+")[0]] += int(nodes) * int(seconds)
            phases[job.partition("+")[0]] += int(nodes)
    return node_s, phases, states


def test_node_seconds_agree_with_slurm_s_own_accounting(wide_slurm_env):
    """Jobs of all strategies side by side."""
    outcome = run(programs.phases_of_each_kind, strategy=",".join(STRATEGIES), jobs=len(STRATEGIES))
    assert outcome.errors == []
    engine_ids, held_s = {}, defaultdict(float)
    for event in as_lines(outcome.events):
        if event["event"] in ("granted", "grown") and event["nodes"]:
            for node in event["nodes"]:
                engine_ids[event["lease"], node, event["engine_us"]] = event["engine_id"]
    for interval in read_history(outcome.events).intervals:
        if interval.kind == "node":
            for node in interval.resources:
                held_s[engine_ids[interval.label, node, interval.begin_us]] += interval.seconds
    node_s, nodes, states = sacct(wide_slurm_env, list(held_s))
    assert set(states.values()) == {"COMPLETED"}, states
    for job, seconds in held_s.items():
        assert abs(seconds - node_s[job]) <= 1.0 * nodes[job], f"Slurm job {job}"
    assert account(read_history(outcome.events)).node_s_held == pytest.approx(sum(held_s.values()))


def test_part_of_what_a_job_has_grown_by_is_given_back(cluster, tmp_path):
    def listen(event):
        if event.event == "task_ended":
            (tmp_path / "idle").touch()

    outcome = run(
        programs.uneven,
        strategy="malleable",
        options={"patience_s": 60.0},
        parameters={"folder": str(tmp_path)},
        listener=listen,
    )
    assert outcome.result == 3
    (grown,) = [event for event in as_lines(outcome.events) if event["event"] == "grown"]
    (shrunk,) = [event for event in as_lines(outcome.events) if event["event"] == "shrunk"]
    assert len(grown["nodes"]) == 2
    assert len(shrunk["nodes"]) == 1
    assert shrunk["nodes"][0] in grown["nodes"]
    assert not any(event["event"] == "resize_refused" for event in as_lines(outcome.events))


def test_growing_never_succeeds_in_a_full_queue_and_the_job_goes_on(cluster):
    cluster.run("salloc", "--no-shell", "-Q", "-J", "others", "-N2", "--exclusive")
    try:
        outcome = run(programs.phases_of_each_kind, strategy="malleable", options={"patience_s": 1.0})
    finally:
        cluster.run("scancel", "-n", "others")
    assert outcome.result == 1
    assert not any(event["event"] == "grown" for event in as_lines(outcome.events))
    assert any(event["event"] == "withdrawn" for event in as_lines(outcome.events))
    wait_until(lambda: queue(cluster) == {}, "an empty queue")


def test_a_ceiling_ends_the_run_and_says_so(cluster):
    site = Site(slurm=Slurm(most_node_hours=3 * 2 / 3600))
    (error,) = run(programs.long_phase, strategy="offload", site=site, parameters={"seconds": 30.0}).errors
    assert "its ceiling of 0.00166667 node-hours" in error.message
    assert "qloom resume" in error.hint


def test_a_ceiling_ends_a_driver_in_its_own_job_too(cluster, qloom_home):
    """Its nodes cannot be taken away from it: its work is, and then it ends."""
    site = Site(nodes=1, slurm=Slurm(most_node_hours=2 / 3600))
    parameters = {"seconds": programs.FOREVER_S}
    plan = Plan(load_program(programs.source(programs.long_phase)), parameters, "offload", world="slurm", site=site)
    events = ended(submit(plan, "in-job").run)
    assert events[-1].as_dict()["state"] == "failed"
    (error,) = [event["error"] for event in as_lines(events) if event["event"] == "job_ended"]
    assert "its ceiling of 0.000555556 node-hours" in error["message"]
    wait_until(lambda: queue(cluster) == {}, "the end of the driver's job")


def test_a_ceiling_on_qpu_seconds_counts_what_is_executed_where_the_qpu_is_not_held(cluster, qloom_home):
    source, site = programs.source(programs.phases_of_each_kind), Site(slurm=Slurm(most_qpu_s=2.4))
    (error,) = qloom.run(source, world="slurm", strategy="offload", site=site).errors
    assert "its ceiling of 2.4 QPU-seconds" in str(error)
    assert "qloom resume" in str(error)
    again = qloom.resume("last")  # nothing is left of what it may use
    assert len(again.errors) == 1
    states = [event["state"] for event in as_lines(again.events) if event["event"] == "quantum_ended"]
    assert states[0] == "done", "1.3 s of 2.4 s"
    assert set(states[1:]) == {"failed"}


@pytest.mark.parametrize(
    ("slurm", "complaint"),
    [
        ({"partition": "nowhere"}, "Slurm has no partition 'nowhere'"),
        ({"quantum_partition": "nowhere"}, "Slurm has no partition 'nowhere'"),
        ({"gres": "toaster"}, "no node of partition quantum has gres/toaster"),
        ({"licences": "toaster"}, "Slurm has no licence 'toaster'"),
        ({"account": "nobody"}, "Slurm has no account 'nobody'"),
        ({"qos": "gold"}, "Slurm has no qos 'gold'"),
        ({"reservation": "never"}, "Requested reservation is invalid"),
        ({"constraint": "fast"}, "Invalid feature specification"),
        ({"time_limit": "soon"}, "Invalid --time specification"),
        ({"arguments": ["--no-such-thing"]}, "no-such-thing"),
    ],
)
def test_what_slurm_does_not_have_is_refused_before_anything_is_asked_for(slurm_env, qloom_home, slurm, complaint):
    with pytest.raises(InputError, match=complaint):
        qloom.run(programs.source(programs.long_phase), world="slurm", site=Site(slurm=Slurm(**slurm)))
    assert not list(qloom_home.glob("runs/*"))


def test_more_nodes_than_the_partition_has_are_refused(slurm_env):
    with pytest.raises(InputError, match="a job may hold 9 nodes and partition compute has 3"):
        run(programs.long_phase, site=Site(nodes=9))


def qloom_command(*words, **environment):
    return subprocess.run([QLOOM, *words], capture_output=True, text=True, check=False, env=environment or None)


def test_a_slurm_conf_that_points_nowhere_and_no_slurm_at_all_are_one_line(slurm_env, qloom_home):
    words = ("run", "phases", "--world", "slurm")
    lost = qloom_command(*words, PATH="/usr/bin:/bin", SLURM_CONF="/nowhere", QLOOM_HOME=str(qloom_home))
    assert (lost.returncode, lost.stderr.count("\n")) == (2, 1)
    assert "SLURM_CONF names /nowhere, which is not there" in lost.stderr
    without = qloom_command(*words, PATH="/nothing", QLOOM_HOME=str(qloom_home))
    assert (without.returncode, without.stderr.count("\n")) == (2, 1)
    assert "there is no Slurm on this machine" in without.stderr


def test_options_on_the_command_line_reach_every_job(cluster):
    words = ("--slurm", "time_limit=7", "--slurm", "arguments=--mail-type=NONE --nice=1", "--nodes", "2")
    done = subprocess.run(
        [
            QLOOM,
            "run",
            programs.source(programs.two_quantum),
            "--world",
            "slurm",
            "--strategy",
            "split",
            "--json",
            *words,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    assert told["results"] == [2]
    names = _names(cluster, told["run"])
    accounted = ("sacct", "-n", "-P", "-X", "--name", names, "-o", "TimelimitRaw")
    limits = wait_until(lambda: cluster.run(*accounted).split(), "the jobs in Slurm's accounting")
    assert set(limits) == {"7"}


def _names(testbed, run):
    """The names of a run's Slurm jobs."""
    said = testbed.run("squeue", "-h", "-t", "all", "-o", "%j").split()
    return ",".join(dict.fromkeys(name for name in said if name.startswith(f"qloom.{run}")))
