"""Runs on a site set up as `qloom slurm config` prints it: their QPU is the broker's, and their share is known."""

from __future__ import annotations

import os
import subprocess

import pytest

from qloom.broker.client.sync import SyncBrokerClient
from tests.journals import as_lines
from tests.slurm import programs
from tests.slurm.driver import ended, result
from tests.slurm.test_testbed_site import BROKER, QLOOM, gres_site, qloom  # noqa: F401  a fixture among them
from tests.slurm.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(gres_site):  # noqa: F811
    """A site with a broker as printed, but for how often it looks."""
    config = gres_site.directory / "etc" / "broker.toml"
    printed = config.read_text().replace("require_job = true", "require_job = true, check_s = 0.5")
    device = "devices = [{kind = 'annealing', name = 'helmi'}]\n"
    config.write_text(f"{device}store = '{gres_site.directory}/broker/broker.db'\n{printed}")
    command = [*QLOOM, "broker", "serve", "--config", str(config)]
    environment = {**os.environ, **gres_site.environment}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert any(b"listening on" in line for line in process.stderr)
        yield gres_site
        process.terminate()


@pytest.fixture
def site(served, monkeypatch):
    """The same as its users see it on a login node: nothing there names the broker."""
    for name in list(os.environ):
        if name.startswith(("SLURM", "SBATCH", "SALLOC", "SRUN", "QLOOM_BROKER")):
            monkeypatch.delenv(name)
    for name, value in served.environment.items():
        monkeypatch.setenv(name, value)
    yield served
    until(lambda: served.run("squeue", "-h") == "")


def devices(events):
    return list(dict.fromkeys(event["device"] for event in as_lines(events) if event["event"] == "quantum_queued"))


@pytest.mark.parametrize("strategy", ["vqpu", "workflow"])  # a share that the driver's job holds, and one of its own
def test_a_run_that_is_submitted_uses_the_qpu_that_its_job_holds(site, qloom_home, strategy):
    done = qloom("submit", programs.source(programs.two_quantum), "--strategy", strategy, "--nodes", "1")
    assert done.returncode == 0, done.stderr
    run = done.stdout.strip()
    events = ended(run)
    assert result(run, events) == 2
    assert devices(events) == ["helmi"]


def test_a_session_ends_with_the_component_that_stands_for_the_qpu(site, tmp_path, monkeypatch):
    monkeypatch.setenv("QLOOM_BROKER_MUNGE", f"{site.directory}/run/munge.sock")
    script = tmp_path / "hybrid.sh"
    script.write_text(
        "#!/bin/sh\n#SBATCH -p compute -N1 -n1 -t 5 --output=/dev/null\n#SBATCH hetjob\n"
        "#SBATCH -p quantum -N1 -n1 --gres=qpu:1 -t 5\nsleep 600\n"
    )
    job = site.run("sbatch", "--parsable", str(script), cwd=tmp_path).strip()
    until(lambda: site.run("squeue", "-h", "-j", job, "-o", "%T").split() == ["RUNNING", "RUNNING"])
    monkeypatch.setenv("SLURM_JOB_ID", job)
    with SyncBrokerClient(BROKER, retry_s=10.0) as broker:
        assert broker.open_session("helmi")["state"] == "open"
        site.run("scancel", f"{job}+1")
        until(lambda: not any(view["sessions_open"] for view in broker.queue()["devices"]))
        assert "RUNNING" in site.run("squeue", "-h", "-j", job, "-o", "%T")  # the classical component goes on
    site.run("scancel", job)
