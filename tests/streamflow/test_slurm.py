"""Exported workflows under real StreamFlow on a real Slurm, with a broker: where steps ran, and what is left."""

from __future__ import annotations

import signal
import subprocess

import pytest

from qloom.broker.client.sync import SyncBrokerClient
from qloom.export import Places, flow_of, write_shell
from tests.streamflow.workflows import ADDING, ASKING, DEADLINE_S, SLEEPING, until

pytestmark = pytest.mark.slow


@pytest.fixture
def drained(site):
    """The device takes nothing new."""
    with SyncBrokerClient(retry_s=5.0) as broker:
        broker.drain("qpu")
        yield
        broker.drain("qpu", False)


def test_a_loop_runs_on_slurm(site):
    workflow = site.export(ADDING, site="slurm")
    assert site.run(workflow) == 0, (workflow / "log").read_text()
    assert (workflow / "results" / "all.txt").read_text().split() == ["1", "2"]
    assert site.jobs() == []


def test_plain_scripts_run_the_same_loop(site, tmp_path):
    (tmp_path / "adding.toml").write_text(ADDING)
    write_shell(tmp_path / "sh", flow_of(str(tmp_path / "adding.toml"), {}), Places("slurm"))
    assert subprocess.run(["sh", tmp_path / "sh" / "run.sh"], env=site.environment).returncode == 0
    until(lambda: site.jobs() == [], "the last iteration is over")  # each one submits the next before it ends
    assert (tmp_path / "sh" / "work" / "all.txt").read_text().split() == ["1", "2"]


def ignoring_ctrl_c():
    """As a shell starts what a script puts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(("ending", "start"), [(signal.SIGINT, None), (signal.SIGTERM, ignoring_ctrl_c)])
def test_an_interrupt_leaves_no_slurm_job(site, ending, start):
    workflow = site.export(SLEEPING, site="slurm")
    process = site.start(workflow, preexec_fn=start)
    until(lambda: len(site.jobs("-t", "running")) == 2, "two jobs run")
    process.send_signal(ending)
    assert process.wait(DEADLINE_S) != 0
    until(lambda: site.jobs() == [], "Slurm has let go of them")
    assert "Traceback" not in (workflow / "log").read_text()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_quantum_task(site, drained, ending):
    workflow = site.export(ASKING, site="slurm", quantum="broker")
    process = site.start(workflow)
    until(
        lambda: "is queued, 0 before it" in (workflow / "log").read_text(), "the task is queued, and the log says so"
    )
    assert site.queued_tasks() == 1
    process.send_signal(ending)
    assert process.wait(DEADLINE_S) != 0
    assert site.queued_tasks() == 0, (workflow / "log").read_text()


def test_a_job_cancelled_from_outside_fails_the_workflow(site):
    places = {"one-node": {"partition": "compute", "begin": "now+1hour"}, "compute": {}, "quantum": {}}
    text = SLEEPING.split("[[phase.task]]")
    workflow = site.export("[[phase.task]]".join(text[:2]), site="slurm", locations=places)
    process = site.start(workflow)
    until(lambda: len(site.jobs("-t", "pending")) == 1, "the job waits")
    site.testbed.run("scancel", *site.jobs())
    assert process.wait(DEADLINE_S) != 0
    told = (workflow / "log").read_text()
    assert "is CANCELLED" in told
    assert "Traceback" not in told


def test_a_broker_that_is_not_there_is_named(site, tmp_path):
    workflow = site.export(ASKING, site="slurm", quantum="broker", broker=f"unix:{tmp_path}/none.sock")
    assert site.run(workflow) != 0
    told = (workflow / "log").read_text()
    assert f"no broker answers at unix:{tmp_path}/none.sock (No such file or directory)" in told
    assert "Traceback" not in told
