"""Things that go wrong around a run on Slurm: nothing is lost, nothing is leaked, and the end is clear."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import threading

import pytest

import qloom
from qloom.broker.client.sync import SyncBrokerClient
from qloom.errors import AllocationEnded
from qloom.journal import home
from qloom.journal.file import read_events
from qloom.journal.history import read_history
from qloom.programs.load import load_program
from qloom.runs.runner import Plan
from qloom.runs.submit import submit
from qloom.site import Site, Slurm
from qloom.slurm.tags import read_tag
from qloom.testing import contracts as contract
from qloom.testing import programs as contract_programs
from qloom.views.accounting import account
from tests.broker.test_remote import nothing_is_left
from tests.journals import as_lines
from tests.slurm import programs
from tests.slurm.conftest import WIDE, resume_nodes
from tests.slurm.driver import (
    DEADLINE_S,
    QLOOM,
    events_of,
    kill_with_its_sallocs,
    left,
    queue,
    reap,
    start,
    wait_for_event,
    wait_until,
)
from tests.slurm.waiting import kill_controller

pytestmark = pytest.mark.slow
LONG = programs.source(programs.long_phase)


@pytest.fixture
def cluster(slurm_env):
    """A cluster that is whole and empty after a test, too."""
    yield slurm_env
    wait_until(lambda: queue(slurm_env) == {}, "an empty queue")
    wait_until(lambda: set(slurm_env.run("sinfo", "-h", "-N", "-o", "%T").split()) == {"idle"}, "idle nodes")


def when_it_runs(log, then):
    """Do something from outside as soon as the long task has begun."""

    def wait():
        wait_until(lambda: log.exists() and log.read_text(), "the long task")
        then()

    watcher = threading.Thread(target=wait)
    watcher.start()
    return watcher


def resumed_without_doing_anything_twice(result):
    """The last run is gone on with, to its result; what had ended is not run again."""
    before = ended(read_events(home.find_run("last")))
    outcome = qloom.resume("last")
    assert outcome.result == result
    assert before, "nothing had ended: there was nothing to do twice"
    assert len(ended(outcome.events)) == len(set(ended(outcome.events)))


def ended(events):
    """The work that has ended well, as often as it has."""
    return [event["work"] for event in as_lines(events) if event.get("state") == "done" and "work" in event]


def run_long(log, then, **plan):
    watcher = when_it_runs(log, then)
    end = plan.pop("end", "")
    try:
        return qloom.run(LONG, world="slurm", parameters={"log": str(log), "end": str(end)}, **plan)
    finally:
        watcher.join()


@pytest.mark.parametrize("strategy", ["offload", "malleable", "workflow"])
def test_a_node_that_goes_down_under_a_task_has_it_run_again_elsewhere(cluster, tmp_path, strategy):
    log = tmp_path / "log"

    def fail():
        for state in ("DOWN", "DRAIN"):  # drained, too: it would come back by itself
            cluster.set_node(log.read_text().split()[0], state, "test")

    outcome = run_long(log, fail, strategy=strategy)
    first, *again = log.read_text().split()
    cluster.set_node(first, "RESUME")
    assert outcome.result == [1, 1]
    assert len(again) == 1
    assert again[0] != first
    assert [event["nodes"] for event in as_lines(outcome.events) if event.get("lost")] == [[first]]
    assert all(interval.state != "open" for interval in read_history(outcome.events).intervals)


def test_a_controller_that_is_killed_and_restarted_in_a_phase_is_waited_for(cluster, tmp_path):
    end = tmp_path / "end"

    def kill():
        kill_controller(cluster)
        end.touch()

    def listen(event):
        if event.event == "slurm_silent":
            threading.Thread(target=cluster.start, args=["slurmctld"]).start()

    outcome = run_long(tmp_path / "log", kill, strategy="workflow", end=end, listener=listen)
    assert outcome.result == [1, 1]
    seen = [
        event["event"] for event in as_lines(outcome.events) if event["event"] in ("slurm_silent", "slurm_answers")
    ]
    assert (seen[0], seen[-1]) == ("slurm_silent", "slurm_answers")
    for line in cluster.run("sinfo", "-h", "-N", "-o", "%N %T").splitlines():
        node, state = line.split()
        if state == "completing":  # Slurm would ask it again to end the job only after a minute
            cluster.set_node(node, "DOWN", "hurry")
    resume_nodes(cluster)


def test_scancel_from_outside_is_a_clear_end_and_can_be_resumed(cluster, tmp_path):
    log = tmp_path / "log"
    outcome = run_long(log, lambda: cluster.run("scancel", *queue(cluster)), strategy="offload")
    (error,) = outcome.errors
    assert isinstance(error, AllocationEnded)
    assert "was cancelled" in error.message
    assert "qloom resume" in error.hint
    used = account(read_history(outcome.events))
    assert 0 < used.node_s_busy <= used.node_s_held
    resumed_without_doing_anything_twice([1, 1])


def test_a_time_limit_is_a_clear_end_and_can_be_resumed(cluster, tmp_path):
    """The limit is brought forward from outside: Slurm's smallest is a minute, and it looks every 30 s."""

    def expire():
        (job,) = left(cluster)
        cluster.run("scontrol", "update", f"JobId={job}", "EndTime=now")

    outcome = run_long(tmp_path / "log", expire, strategy="offload", site=Site(slurm=Slurm(time_limit="9")))
    (error,) = outcome.errors
    assert "reached its time limit" in error.message
    assert "a longer time_limit" in error.hint
    resumed_without_doing_anything_twice([1, 1])


def test_preemption_is_a_clear_end_and_can_be_resumed(strict_slurm_env, tmp_path):
    def preempt():
        strict_slurm_env.run("salloc", "--no-shell", "-Q", "-J", "urgent", f"-N{WIDE}", "--qos=normal")

    low = Site(slurm=Slurm(qos="low"))
    outcome = run_long(tmp_path / "log", preempt, strategy="offload", site=low)
    strict_slurm_env.run("scancel", "-n", "urgent")
    (error,) = outcome.errors
    assert isinstance(error, AllocationEnded)
    assert "was preempted" in error.message
    resumed_without_doing_anything_twice([1, 1])
    wait_until(lambda: queue(strict_slurm_env) == {}, "an empty queue")


@pytest.mark.parametrize("strategy", ["workflow", "split"])  # the QPU alone, and with nodes as a het job
def test_a_qpu_that_is_drained_in_the_middle_keeps_the_job_waiting_with_the_reason(cluster, strategy):
    site = Site(slurm=Slurm(poll_s=0.5))
    reasons = []

    def listen(event):
        if event.event == "quantum_ended" and not reasons:
            cluster.set_node("q1", "DRAIN", "calibration")
        if event.event == "still_waits" and "drained" in event.reason:
            reasons.append(event.reason)
            cluster.set_node("q1", "RESUME")

    outcome = qloom.run(
        programs.source(programs.two_quantum), world="slurm", strategy=strategy, site=site, listener=listen
    )
    assert outcome.result == 2
    assert reasons


def test_a_broker_that_is_killed_is_waited_for_and_paid_once(cluster):
    address, store = cluster.environment["QLOOM_BROKER"], cluster.directory / "broker" / "broker.db"
    before = tasks_in(store)
    killed = []

    def listen(event):
        if event.event == "quantum_started" and not killed:
            cluster.kill("broker")
            killed.append(threading.Thread(target=cluster.start, args=["broker"]))
            killed[0].start()

    outcome = qloom.run(
        contract_programs.source(contract_programs.loop),
        world="slurm",
        strategy="coschedule",
        site=Site(broker=address),
        listener=listen,
    )
    assert killed
    killed[0].join()
    assert outcome.result == contract.expected(contract_programs.loop)
    assert len(ended(outcome.events)) == len(set(ended(outcome.events)))
    assert tasks_in(store) - before == 3, "a task was accepted twice"
    with SyncBrokerClient(address, retry_s=20.0) as client:
        wait_until(lambda: nothing_is_left(client), "the end of all sessions")


def tasks_in(store):
    """How many tasks a broker has ever accepted."""
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT count(*) FROM tasks").fetchone()[0]


# Drivers that die


def kill_driver(words, home, moment, since=0):
    """Start a driver and kill it, with no chance to clean up, at an event of its journal."""
    driver = start(*words, "-q")
    wait_until(lambda: any(event["event"] == moment for event in as_lines(events_of(home)[since:])), moment)
    driver.kill()
    driver.communicate()


@pytest.mark.parametrize("strategy", ["malleable", "split"])
def test_a_driver_that_is_killed_in_each_phase_is_resumed_and_leaves_nothing(cluster, qloom_home, strategy):
    source = programs.source(programs.three_phases)
    kill_driver(["run", source, "--strategy", strategy, "--world", "slurm"], qloom_home, "granted")
    for moment in ("task_started", "quantum_started", "task_started"):  # the second one is of the last phase
        kill_driver(["resume", "last"], qloom_home, moment, since=len(events_of(qloom_home)))
    resumed_without_doing_anything_twice(3)
    assert len([event for event in as_lines(events_of(qloom_home)) if event["event"] == "resumed"]) == 4


def test_what_a_driver_in_a_job_leaves_is_released_when_that_job_has_ended(cluster, qloom_home):
    plan = Plan(
        load_program(programs.source(programs.three_phases)),
        {"seconds": programs.FOREVER_S},
        "workflow",
        world="slurm",
    )
    own = submit(plan, "in-job").job
    wait_for_event(qloom_home, "task_started")
    assert reap() == []
    tags = [read_tag(line) for line in cluster.run("squeue", "-h", "-o", "%k").splitlines()]
    (driver,) = [int(tag.pid) for tag in tags if tag is not None]
    kill_with_its_sallocs(driver)
    wait_until(lambda: own not in queue(cluster), "the end of the driver's job")
    still_held = list(left(cluster))
    assert len(still_held) == 1, "the second node of the phase"
    assert [row["job"] for row in reap()] == still_held


@pytest.mark.parametrize(
    ("command", "how"),
    [
        (["scancel", "JOB"], "was cancelled by its user or an administrator"),
        (["scontrol", "update", "JobId=JOB", "EndTime=now"], "reached its time limit (ask for a longer time_limit)"),
    ],
)
def test_a_driver_whose_own_job_is_ended_says_how_and_is_resumed_elsewhere(
    cluster, qloom_home, tmp_path, command, how
):
    plan = Plan(load_program(LONG), {"log": str(tmp_path / "log")}, world="slurm")
    submitted = submit(plan, "in-job")
    wait_until((tmp_path / "log").exists, "the long task")
    cluster.run(*[word.replace("JOB", submitted.job) for word in command])
    wait_until(lambda: queue(cluster) == {}, "the end of the driver's job")
    said = subprocess.run([QLOOM, "explain", "last", "--json"], capture_output=True, text=True, check=True).stdout
    assert f"its driver lived in Slurm job {submitted.job}, which {how}" in json.loads(said)["sentences"]
    resumed_without_doing_anything_twice([1, 1])


def test_reap_releases_what_a_dead_driver_left_and_nothing_of_a_live_one(cluster, qloom_home):
    words = [LONG, "--nodes", "1"]
    driver = start("run", *words, "--world", "slurm", "--strategy", "offload", "-q")
    wait_for_event(qloom_home, "task_started")
    kill_with_its_sallocs(driver.pid)
    driver.communicate()
    leaked = left(cluster)
    assert leaked
    live = subprocess.Popen(
        [QLOOM, "run", *words, "--world", "slurm", "--strategy", "offload", "-q"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: not set(leaked) & set(queue(cluster)), "the release of what was leaked, at start-up")
    held = wait_until(lambda: dict.fromkeys(left(cluster), "RUNNING"), "an allocation of the live driver")
    wait_until(lambda: queue(cluster) == held, "its start")
    assert reap() == []
    assert queue(cluster) == held
    live.send_signal(signal.SIGTERM)
    live.wait(timeout=DEADLINE_S)
    assert left(cluster) == {}


def accounted(testbed, job):
    """How Slurm's accounting says that a job has ended."""
    said = testbed.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "State").split()
    return said[0] if said and said[0] not in ("RUNNING", "PENDING") else None


def test_allocations_of_a_dead_driver_end_with_it_and_not_as_completed(cluster, qloom_home):
    driver = start("run", LONG, "--world", "slurm", "--strategy", "offload", "-q")
    wait_for_event(qloom_home, "task_started")
    (held,) = left(cluster)
    driver.kill()
    driver.communicate()
    wait_until(lambda: queue(cluster) == {}, "an empty queue")
    assert reap() == []
    assert wait_until(lambda: accounted(cluster, held), "its end in accounting") == "CANCELLED"


def test_the_allocations_of_a_job_that_fails_are_cancelled(cluster, qloom_home):
    outcome = qloom.run(programs.source(programs.fails), world="slurm", strategy="offload")
    assert len(outcome.errors) == 1
    (held,) = [event["engine_id"] for event in as_lines(outcome.events) if event["event"] == "granted"]
    assert wait_until(lambda: accounted(cluster, held), "its end in accounting") == "CANCELLED"


def test_pending_requests_of_a_dead_driver_leave_the_queue_with_it(cluster, qloom_home):
    cluster.run("salloc", "--no-shell", "-Q", "-J", "others", "-N3", "--exclusive")
    driver = start("run", LONG, "--world", "slurm", "--strategy", "offload", "-q")
    wait_until(lambda: "PENDING" in queue(cluster).values(), "a pending request")
    driver.kill()
    driver.communicate()
    wait_until(lambda: "PENDING" not in queue(cluster).values(), "the end of the request")
    cluster.run("scancel", "-n", "others")


def test_a_driver_that_is_asked_to_end_gives_everything_back(cluster, qloom_home):
    driver = start("run", LONG, "--world", "slurm", "--strategy", "malleable", "-q")
    wait_for_event(qloom_home, "task_started")
    driver.send_signal(signal.SIGINT)
    _, said = driver.communicate(timeout=DEADLINE_S)
    assert driver.returncode == 130
    (run,) = (qloom_home / "runs").iterdir()
    assert f"qloom resume {run.name}" in said
    assert left(cluster) == {}
    assert events_of(qloom_home)[-1].state == "interrupted"
