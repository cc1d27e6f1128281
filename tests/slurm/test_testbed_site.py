"""What a site is told to configure, given to a real Slurm; and devices that are away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib

import pytest

from qloom.errors import QloomError
from qloom.slurm.device_state import set_device_state
from qloom.slurm.site_config import PORT
from qloom.testbed import Testbed, TestbedSettings
from tests.slurm.waiting import until

QLOOM = [sys.executable, "-c", "from qloom.cli.main import run; run()"]
# Of the loopback addresses one that no other process of tests has: a port that is free now may be taken meanwhile.
BROKER = f"http://127.{1 + (os.getpid() >> 16)}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}:{PORT}"
HYBRID = """#!/bin/sh
#SBATCH -p compute -N1 -n1 -t 5 --output=/dev/null
#SBATCH hetjob
#SBATCH -p quantum -N1 -n1 --gres=qpu:1 -t 5
srun --het-group=0 true : --het-group=1 sleep 600
"""


def qloom(*words: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*QLOOM, *words], capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment}
    )


def states(testbed: Testbed, job: str) -> list[str]:
    return testbed.run("squeue", "-h", "-j", job, "-o", "%T").split()


def reason(testbed: Testbed, job: str) -> str:
    return testbed.run("squeue", "-h", "-j", job, "-o", "%r")


def configured(kind: str, *words: str):
    """A testbed whose QPU is configured as `qloom slurm config` says."""
    settings = TestbedSettings(nodes=1, broker=False)
    with Testbed.up(f"site-{kind}-{os.getpid()}", settings, attached=True) as testbed:
        give(testbed, *words)
        yield testbed


def give(testbed: Testbed, *words: str) -> None:
    """Put the printed lines in the place of the testbed's own, and add where the node is found."""
    etc = testbed.directory / "etc"
    where = ("--etc", str(etc), "--munge-socket", f"{testbed.directory}/run/munge.sock", "--broker", BROKER)
    printed = qloom("slurm", "config", *words, *where, "--json")
    files = json.loads(printed.stdout)
    own = [line for line in (etc / "slurm.conf").read_text().splitlines() if "StorageTRES=" not in line]
    if "gres.conf" in files:
        node = next(line for line in own if line.startswith("NodeName=q1")).split()
        found = [word for word in node if word.startswith(("NodeHostname=", "NodeAddr=", "Port="))]
        own = [line for line in own if not line.startswith(("GresTypes=", "NodeName=q1", "PartitionName=quantum"))]
        files["slurm.conf"] = files["slurm.conf"].replace("NodeName=q1 ", f"NodeName=q1 {' '.join(found)} ")
    files["slurm.conf"] = "\n".join([*own, files["slurm.conf"]])
    for name, text in files.items():
        (etc / name).write_text(text)
    (etc / "qloom-task-prolog").chmod(0o755)
    daemons = [row["name"] for row in testbed.status() if row["name"].startswith(("slurmctld", "slurmd."))]
    for daemon in daemons:
        testbed.stop(daemon)
    for daemon in daemons:
        testbed.start(daemon)
    until(lambda: [row["state"] for row in testbed.nodes()] == ["idle", "idle"])


@pytest.fixture(scope="module")
def gres_site(slurm_programs):
    yield from configured("gres", "--qpu", "helmi:2")


@pytest.fixture(scope="module")
def licence_site(slurm_programs):
    yield from configured("lic", "--qpu", "helmi:2", "--licences")


@pytest.fixture
def point_at(monkeypatch):
    """Makes a testbed the Slurm of this process."""

    def point(testbed: Testbed) -> None:
        for name, value in testbed.environment.items():
            monkeypatch.setenv(name, value)

    return point


@pytest.mark.slow
def test_printed_gres_lines_work_and_tasks_are_told_their_share(gres_site):
    everywhere = [f"QLOOM_BROKER={BROKER}", f"QLOOM_BROKER_MUNGE={gres_site.directory}/run/munge.sock"]
    told = gres_site.run("srun", "-p", "quantum", "--gres=qpu:helmi:2", "sh", "-c", "env | grep QLOOM_[BQ] | sort")
    assert told.split() == [*everywhere, "QLOOM_QPU=helmi", "QLOOM_QPU_SHARES=2"]
    told = gres_site.run("srun", "-p", "compute", "sh", "-c", "env | grep QLOOM_[BQ] | sort")
    assert told.split() == everywhere
    job = ("sbatch", "--parsable", "-p", "quantum", "--output=/dev/null", "--wrap", "sleep 600")
    jobs = [gres_site.run(*job, "--gres=qpu:1").strip() for _ in range(3)]
    until(lambda: [states(gres_site, one) for one in jobs[:2]] == [["RUNNING"]] * 2)
    until(lambda: reason(gres_site, jobs[2]) == "Resources\n")
    with pytest.raises(QloomError, match="not available"):
        gres_site.run(*job, "--gres=qpu:atoms:1")
    gres_site.run("scancel", *jobs)
    until(lambda: gres_site.run("squeue", "-h") == "")


@pytest.mark.slow
def test_the_share_of_a_hybrid_job_is_told_on_the_node_of_the_qpu(gres_site, tmp_path):
    script = tmp_path / "hybrid.sh"
    tell = "sh -c 'echo $SLURMD_NODENAME $QLOOM_QPU $QLOOM_QPU_SHARES'"
    script.write_text(HYBRID.replace("true", tell).replace("sleep 600", tell).replace("/dev/null", f"{tmp_path}/out"))
    gres_site.run("sbatch", "--wait", str(script), cwd=tmp_path, timeout_s=60)
    assert sorted((tmp_path / "out").read_text().splitlines()) == ["c1", "q1 helmi 1"]


@pytest.fixture
def site_broker(gres_site):
    """A broker with the printed config, and a device of the name."""
    config = gres_site.directory / "etc" / "broker.toml"
    device = "devices = [{kind = 'annealing', name = 'helmi'}]\n"
    config.write_text(f"{device}store = '{gres_site.directory}/broker/broker.db'\n" + config.read_text())
    environment = {**os.environ, **gres_site.environment}
    with subprocess.Popen(
        [*QLOOM, "broker", "serve", "--config", str(config)], env=environment, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert any(b"listening on" in line for line in process.stderr)
        yield gres_site
        process.terminate()


@pytest.mark.slow
def test_only_a_job_that_holds_the_share_gets_a_session(site_broker):
    script = (
        "from qloom.broker.client.sync import SyncBrokerClient\n"
        "from qloom.errors import QloomError\n"
        "try:\n"
        "    with SyncBrokerClient(retry_s=10.0) as broker:\n"
        "        print(broker.open_session('helmi')['state'])\n"
        "except QloomError as error:\n"
        "    print(error)\n"
    )
    command = (sys.executable, "-c", script)
    assert site_broker.run("srun", "-p", "quantum", "--gres=qpu:helmi:1", *command, timeout_s=60) == "open\n"
    refused = site_broker.run("srun", "-p", "compute", *command, timeout_s=60)
    assert "holds 0 shares" in refused


@pytest.mark.slow
def test_a_device_that_is_away_has_its_licences_reserved(licence_site, point_at):
    point_at(licence_site)
    job = ("sbatch", "--parsable", "--output=/dev/null", "-L", "helmi:1", "-t", "5", "--wrap", "sleep 600")
    before = licence_site.run(*job).strip()
    until(lambda: states(licence_site, before) == ["RUNNING"])
    done = qloom("slurm", "device-state", "--licence", QLOOM_DEVICE="helmi", QLOOM_DEVICE_STATE="calibration")
    assert (done.returncode, done.stdout) == (0, "licences of helmi are reserved: it is calibration\n"), done.stderr
    waiting = licence_site.run(*job).strip()
    without = licence_site.run("srun", "-t", "1", "printenv", "QLOOM_BROKER")  # others are not in the way
    assert without == f"{BROKER}\n"
    assert states(licence_site, waiting) == ["PENDING"]
    assert states(licence_site, before) == ["RUNNING"], "what runs goes on"
    assert set_device_state("helmi", "offline", licence=True) == "licences of helmi are reserved already"
    assert set_device_state("helmi", "idle", licence=True) == "licences of helmi are free to use"
    until(lambda: states(licence_site, waiting) == ["RUNNING"])
    licence_site.run("scancel", before, waiting)


@pytest.mark.slow
def test_a_drained_device_keeps_hybrid_jobs_pending(testbed, point_at, tmp_path):
    point_at(testbed)
    script = tmp_path / "hybrid.sh"
    script.write_text(HYBRID)
    assert qloom("broker", "drain", "qpu").returncode == 0
    until(lambda: "qloom: qpu is drained" in testbed.run("scontrol", "show", "node", "q1"))
    job = testbed.run("sbatch", "--parsable", str(script), cwd=tmp_path).strip()
    until(lambda: "DOWN, DRAINED" in reason(testbed, job) or "Resources" in reason(testbed, job))
    assert states(testbed, job) == ["PENDING", "PENDING"]
    assert qloom("broker", "resume", "qpu").returncode == 0
    until(lambda: states(testbed, job) == ["RUNNING", "RUNNING"])
    testbed.run("scancel", job)
    until(lambda: all(row["state"] == "idle" for row in testbed.nodes()))


@pytest.mark.slow
def test_a_node_that_somebody_else_has_drained_is_left_alone(testbed, point_at):
    point_at(testbed)
    testbed.set_node("q1", "DRAIN", "a broken fan")
    try:
        assert set_device_state("qpu", "calibration") == "q1 is drained already, for another reason than qpu"
        assert set_device_state("qpu", "idle") == "q1 stays drained, for another reason than qpu"
        assert "a broken fan" in testbed.run("scontrol", "show", "node", "q1")
    finally:
        testbed.set_node("q1", "RESUME")
    until(lambda: all(row["up"] for row in testbed.nodes()))
    assert set_device_state("qpu", "busy") == "q1 is in service"


@pytest.mark.slow
def test_unknown_devices_are_one_line(testbed, point_at):
    point_at(testbed)
    done = qloom("slurm", "device-state", "helmi", "offline")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("qloom: no node has the QPU helmi")
    done = qloom("slurm", "device-state", "helmi", "offline", "--licence")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("qloom: there is no licence helmi")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "qloom: which QPUs? (--qpu NAME:SHARES, repeatable)"),
        (["--qpu", "helmi"], "qloom: 'helmi' is not a QPU"),
        (["--qpu", "helmi:0"], "qloom: 'helmi:0' is not a QPU"),
        (["--qpu", "helmi:8:q 1"], "qloom: 'helmi:8:q 1' is not a QPU"),
        (
            ["--qpu", "a:1:q1", "--qpu", "b:1:q1"],
            "qloom: two QPUs have the same node (a node is drained with its QPU",
        ),
        (["--qpu", "a:1", "--qpu", "a:2"], "qloom: two QPUs have the same name"),
    ],
)
def test_bad_qpus_are_one_line(words, told):
    done = qloom("slurm", "config", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(told)
    assert done.stderr.count("\n") == 1


def test_the_files_can_be_written(tmp_path):
    assert qloom("slurm", "config", "--qpu", "helmi:8", "--output", str(tmp_path / "site")).returncode == 0
    assert os.access(tmp_path / "site" / "qloom-task-prolog", os.X_OK)
    assert "Gres=qpu:helmi:8" in (tmp_path / "site" / "slurm.conf").read_text()
    again = qloom("slurm", "config", "--qpu", "helmi:8", "--output", str(tmp_path / "site"))
    assert again.returncode == 2


def test_the_printed_broker_accepts_what_its_callers_can_show():
    printed = tomllib.loads(json.loads(qloom("slurm", "config", "--qpu", "helmi:8", "--json").stdout)["broker.toml"])
    assert printed["listen"] == ["q1:7117"]
    assert printed["auth"]["methods"] == ["munge"]  # peers are known on unix sockets only
