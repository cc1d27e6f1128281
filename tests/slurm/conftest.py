"""Real Slurm for tests: one testbed of each kind per session (and per worker of xdist), started when first used."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from qloom.testbed import Testbed, TestbedSettings
from qloom.testbed.settings import APT, PREFIX_VARIABLE
from tests.slurm.waiting import until

if prefix := os.environ.get(PREFIX_VARIABLE):
    os.environ[PREFIX_VARIABLE] = os.path.abspath(prefix)  # children of tests have other directories
ABSENT = TestbedSettings().installation.missing()
TESTBEDS = {"testbed", "wide_testbed", "strict_testbed", "slurm_programs"}
WIDE = 18  # nodes; a job holds at most three
LOUD = f"SLURM IS NOT TESTED: {', '.join(ABSENT)} not here ({APT})"


def pytest_collection_modifyitems(items):
    """Tests that use real Slurm are skipped, loudly, where it is not installed."""
    if ABSENT:
        for item in items:
            if TESTBEDS & set(getattr(item, "fixturenames", ())):
                item.add_marker(pytest.mark.skip(reason=LOUD))


@pytest.fixture(scope="session")
def slurm_programs():
    """For tests that start a testbed of their own."""


@pytest.fixture(scope="session")
def testbed():
    """An open site with accounting and a broker; leave no jobs and no daemon down behind."""
    yield from _shared("open", TestbedSettings())


@pytest.fixture(scope="session")
def wide_testbed():
    """The same with room for a job of each strategy at once."""
    yield from _shared("wide", TestbedSettings(nodes=WIDE))


@pytest.fixture(scope="session")
def strict_testbed():
    """A wide site with a centre's policies, but for the scheduler's leisure."""
    yield from _shared("strict", TestbedSettings(nodes=WIDE, site="strict", bf_interval_s=1))


def _shared(kind: str, settings: TestbedSettings):
    with Testbed.up(f"test-{kind}-{os.getpid()}", settings, attached=True) as testbed:
        yield testbed


@pytest.fixture
def slurm_env(testbed, monkeypatch):
    """The shared testbed as the Slurm of this process, with nothing of an outer job."""
    return _enter(testbed, monkeypatch)


@pytest.fixture
def wide_slurm_env(wide_testbed, monkeypatch):
    """The same with the wide one."""
    return _enter(wide_testbed, monkeypatch)


@pytest.fixture
def strict_slurm_env(strict_testbed, monkeypatch):
    """The same with the strict site."""
    return _enter(strict_testbed, monkeypatch)


@pytest.fixture
def slurm(slurm_env, monkeypatch):
    """The testbed for MPI; whatever a test leaves in its queue is a failure, and is cancelled."""
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")  # all nodes are this machine
    yield slurm_env
    left = slurm_env.run("squeue", "--noheader", "--format=%i %j %T")
    slurm_env.run("scancel", "--me")
    until(lambda: not slurm_env.run("squeue", "--noheader"))
    assert all("COMPLETING" in line for line in left.splitlines()), left


@pytest.fixture
def two_nodes(slurm):
    """A Slurm job of two nodes and their names."""
    said = subprocess.run(
        ["salloc", "--no-shell", "-N2", "--mincpus=2", "-t5"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stderr
    job = re.search(r"Granted job allocation (\d+)", said)[1]
    listed = slurm.run("squeue", "--noheader", f"--job={job}", "--format=%N").strip()
    yield job, slurm.run("scontrol", "show", "hostnames", listed).split()
    slurm.run("scancel", job)


def resume_nodes(testbed: Testbed) -> None:
    """Those that a test took out, also if a controller that was killed has forgotten that they are back."""
    for line in testbed.run("sinfo", "-h", "-N", "-o", "%N %T").splitlines():
        node, state = line.split()
        if state.startswith(("dra", "down")):
            testbed.set_node(node, "RESUME")


def _enter(testbed: Testbed, monkeypatch):
    for row in testbed.status():
        if not row["up"]:
            testbed.start(row["name"])  # a test that failed in the middle of a fault must not fail all others
    resume_nodes(testbed)
    if testbed.run("squeue", "-h"):
        testbed.run("scancel", "--me")  # nor what it has left in the queue
        until(lambda: testbed.run("squeue", "-h") == "")
    for name in list(os.environ):
        if name.startswith(("SLURM", "SBATCH", "SALLOC", "SRUN")):
            monkeypatch.delenv(name)
    for name, value in testbed.environment.items():
        if name != "QLOOM_BROKER":  # runs have a queue of their own, unless a test says so
            monkeypatch.setenv(name, value)
    monkeypatch.delenv("QLOOM_BROKER", raising=False)
    return testbed
