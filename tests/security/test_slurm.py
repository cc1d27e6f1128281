"""The broker beside a real Slurm that is restarted, says no, or is configured otherwise than the broker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from qloom.broker.client.sync import SyncBrokerClient
from qloom.errors import Refused
from qloom.testbed import Testbed, TestbedSettings
from tests.broker.processes import Service, toml
from tests.slurm.conftest import ABSENT, LOUD
from tests.slurm.waiting import until

needs_slurm = pytest.mark.skipif(bool(ABSENT), reason=LOUD)
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="NOT TESTED: other users need root and setpriv"
)
OTHER, OTHER_UID = "daemon", 1  # a user who is neither root nor SlurmUser


@pytest.fixture(scope="module")
def cluster():
    """A Slurm with accounting and no broker, in a directory that other users can enter."""
    with tempfile.TemporaryDirectory(prefix="qloom-") as place:
        directory = Path(place) / "d"
        with Testbed.up(
            "security", TestbedSettings(nodes=1, broker=False), directory=directory, attached=True
        ) as testbed:
            for entered in (Path(place), directory, directory / "etc", directory / "run"):
                entered.chmod(0o711)
            (directory / "etc" / "slurm.conf").chmod(0o644)
            yield testbed


@pytest.fixture
def slurm(cluster, monkeypatch):
    """The same as the Slurm of this process and of the brokers that it starts."""
    for name in list(os.environ):
        if name.startswith(("SLURM", "SBATCH", "SALLOC", "SRUN", "QLOOM_BROKER")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    yield cluster
    cluster.run("scancel", "--me")
    until(lambda: cluster.run("squeue", "-h") == "")


@pytest.fixture
def serve(tmp_path):
    """Starts a broker with one device, `qpu`, and the values of a test in its config."""
    services = []

    def start(**values) -> Service:
        device = {"kind": "annealing", "name": "qpu"}
        service = Service(tmp_path, module="tests.broker.plain", devices=[device], **values)
        service.start()
        services.append(service)
        return service

    yield start
    for service in services:
        service.stop()


def shares_job(slurm, *words: str) -> str:
    """A job that holds a share of the QPU."""
    return slurm.run(
        "sbatch", "--parsable", "-p", "quantum", "--gres=qpu:1", "-o", "/dev/null", *words, "--wrap=sleep 600"
    ).strip()


def state(slurm, job: str) -> str:
    return slurm.run("squeue", "-h", "-j", job, "-o", "%T").strip()


def open_sessions(client: SyncBrokerClient) -> int:
    return client.queue()["devices"][0]["sessions_open"]


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


# The hook


def test_a_hook_that_fails_is_run_again_until_it_succeeds(tmp_path, serve):
    broken, told = tmp_path / "broken", tmp_path / "told"
    broken.touch()
    hook = script(
        tmp_path / "hook",
        f'if [ -e {broken} ]; then echo "$QLOOM_DEVICE_STATE" >> {tmp_path}/tried; echo "not now" >&2; exit 3; fi; '
        f'echo "$QLOOM_DEVICE_STATE" >> {told}',
    )
    service = serve(hook=[hook])
    until(lambda: "qpu, idle: not now" in (tmp_path / "log").read_text())
    with SyncBrokerClient(service.address, retry_s=5.0) as client:
        client.drain("qpu")
        until(lambda: "drained" in (tmp_path / "tried").read_text())
        broken.unlink()
        until(told.exists)
        assert told.read_text().split() == ["drained"]  # the state that has passed is not told any more
        broken.touch()
        client.drain("qpu", False)  # and the other way: a node must not stay drained
        until(lambda: (tmp_path / "tried").read_text().splitlines()[-1] == "idle")
        broken.unlink()
        until(lambda: told.read_text().split() == ["drained", "idle"])
    assert "the hook" in (log := (tmp_path / "log").read_text())
    assert "works again: QPU qpu is idle" in log
    assert log.count("qpu, drained: not now") == 1, "it is logged once, however often it fails"


@needs_slurm
@needs_root
@pytest.mark.slow
def test_a_hook_that_slurm_does_not_allow_is_found_at_the_start_and_works_once_it_is_allowed(
    slurm, tmp_path, serve, monkeypatch
):
    (tmp_path / "bin").mkdir()
    become = f"setpriv --reuid={OTHER_UID} --regid={OTHER_UID} --clear-groups"
    script(tmp_path / "bin" / "scontrol", f'exec {become} {shutil.which("scontrol")} "$@"')
    slurm.run("sacctmgr", "-i", "add", "user", OTHER, "account=root", "adminlevel=Operator")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    service = serve(hook=[str(Path(sys.executable).with_name("qloom")), "slurm", "device-state"])
    log = tmp_path / "log"
    until(lambda: "AdminLevel=Administrator" in log.read_text())
    assert "Slurm does not let" in log.read_text()
    with SyncBrokerClient(service.address, retry_s=5.0) as client:
        client.drain("qpu")
        until(lambda: "qpu, drained: qloom: Slurm does not let" in log.read_text())
        assert "DRAIN" not in slurm.run("scontrol", "-o", "show", "node", "q1")
        slurm.run("sacctmgr", "-i", "modify", "user", OTHER, "set", "adminlevel=Administrator")
        until(lambda: "qloom: qpu is drained" in slurm.run("scontrol", "-o", "show", "node", "q1"))
        client.drain("qpu", False)
        until(lambda: "DRAIN" not in slurm.run("scontrol", "-o", "show", "node", "q1"))


# Jobs and their shares


def saved(slurm) -> float:
    """When slurmctld last wrote down what it knows of jobs."""
    file = slurm.directory / "state" / "job_state"
    return file.stat().st_mtime if file.exists() else 0.0


@needs_slurm
@pytest.mark.slow
def test_a_slurmctld_that_forgets_that_a_job_runs_does_not_close_its_sessions(slurm, tmp_path, serve, monkeypatch):
    (tmp_path / "bin").mkdir()
    looks = tmp_path / "looks"
    script(tmp_path / "bin" / "squeue", f'{shutil.which("squeue")} "$@" 2>&1 | tee -a {looks}')
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        service = serve(slurm={"require_job": True, "check_s": 0.1, "confirm_s": 3600.0})
    before_s = saved(slurm)
    job = shares_job(slurm, "--hold")
    until(lambda: saved(slurm) > before_s)  # as pending; it is written down again only some seconds later
    slurm.run("scontrol", "release", job)
    until(lambda: state(slurm, job) == "RUNNING")
    monkeypatch.setenv("SLURM_JOB_ID", job)
    with SyncBrokerClient(service.address, retry_s=5.0) as client:
        client.open_session("qpu")
        slurm.kill("slurmctld")
        slurm.start("slurmctld")
        seen = looks.read_text().count("\n")
        until(lambda: looks.read_text().count("\n") > seen + 2)
        assert open_sessions(client) == 1
        slurm.run("scancel", job)
        until(lambda: open_sessions(client) == 0)  # an end that Slurm shows needs no second look


@needs_slurm
@pytest.mark.slow
def test_a_share_counts_once_by_whatever_number_its_job_is_called(slurm, tmp_path, serve, monkeypatch):
    first = shares_job(slurm, "--array=0-2")
    until(lambda: slurm.run("squeue", "-h", "-j", first, "-o", "%T").split() == ["RUNNING"] * 3)
    hybrid = tmp_path / "hybrid.sh"
    hybrid.write_text(
        "#!/bin/sh\n#SBATCH -p compute -N1 -n1 -o /dev/null\n#SBATCH hetjob\n"
        "#SBATCH -p quantum -N1 -n1 --gres=qpu:1\nsleep 600\n"
    )
    het = slurm.run("sbatch", "--parsable", str(hybrid), cwd=tmp_path).strip()
    until(lambda: slurm.run("squeue", "-h", "-j", het, "-o", "%T").split() == ["RUNNING"] * 2)
    service = serve(slurm={"require_job": True, "check_s": 0.1, "confirm_s": 0.1})
    with SyncBrokerClient(service.address, retry_s=5.0) as client:
        for number, again in ((first, f"0{first}"), (het, str(int(het) + 1))):  # an element of three, a component
            monkeypatch.setenv("SLURM_JOB_ID", number)
            client.open_session("qpu")
            monkeypatch.setenv("SLURM_JOB_ID", again)
            with pytest.raises(Refused, match=f"Slurm job {number} holds 1 shares of QPU qpu"):
                client.open_session("qpu")
        assert open_sessions(client) == 2


@needs_slurm
@pytest.mark.slow
def test_shares_that_slurm_does_not_have_are_found(slurm, tmp_path):
    def checked(shares: int, *devices: str) -> subprocess.CompletedProcess:
        config = tmp_path / "broker.toml"
        described = [{"kind": "annealing", "name": name} for name in devices]
        values = {"store": str(tmp_path / "broker.db"), "devices": described, "promise": {"shares": shares}}
        config.write_text(toml({**values, "slurm": {"require_job": True}}))
        command = [str(Path(sys.executable).with_name("qloom")), "broker", "check", "--config", str(config)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert checked(8, "qpu").returncode == 0
    assert checked(8, "helmi").returncode == 0  # the only device: shares without a type are its own
    more = checked(9, "qpu")
    assert more.returncode == 1
    assert "QPU qpu offers 9 shares, and Slurm counts 8 of gres/qpu" in more.stderr
    other = checked(8, "qpu", "helmi")
    assert other.returncode == 1
    assert "QPU helmi offers 8 shares, and Slurm counts 0 of gres/qpu:helmi" in other.stderr
