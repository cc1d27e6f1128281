"""The strict site refuses what a computing centre refuses."""

from __future__ import annotations

import os
import pwd

import pytest

from qloom.errors import QloomError
from tests.slurm.conftest import WIDE
from tests.slurm.waiting import until

pytestmark = pytest.mark.slow
QUIET = ("--parsable", "--output=/dev/null")


def submit(testbed, *words: str, command: str = "sleep 600") -> str:
    return testbed.run("sbatch", *QUIET, *words, "--wrap", command).strip()


def state(testbed, job: str) -> str:
    return testbed.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()


@pytest.fixture(autouse=True)
def no_jobs_left(strict_testbed):
    yield
    strict_testbed.run("scancel", "--user", pwd.getpwuid(os.getuid()).pw_name)
    until(lambda: strict_testbed.run("squeue", "-h") == "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--account=nosuch"], "Invalid account"),
        (["--qos=nosuch"], "Invalid qos"),
        (["--account=teaching", "-N2"], "AssocGrpNodeLimit|violates accounting/QOS policy"),
        (["--time=2-00:00:00"], "Requested time limit is invalid"),
        ([f"-N{WIDE + 1}"], "Node count specification invalid|more.*nodes"),
        (["--partition=quantum", "--gres=qpu:9"], "Requested node configuration is not available"),
    ],
)
def test_it_refuses(strict_testbed, words, told):
    with pytest.raises(QloomError, match=told):
        submit(strict_testbed, *words)


def test_somebody_without_an_association_is_refused(strict_testbed):
    user = pwd.getpwuid(os.getuid()).pw_name
    strict_testbed.run("sacctmgr", "-i", "delete", "user", user, "Account=teaching")
    try:
        with pytest.raises(QloomError, match="Invalid account"):
            submit(strict_testbed, "--account=teaching")
    finally:
        strict_testbed.run("sacctmgr", "-i", "add", "user", user, "Account=teaching", "QOS=normal,low")


def test_nodes_are_whole(strict_testbed):
    for words in (f"-N{WIDE - 1}", "-n1"):
        job = submit(strict_testbed, words)
        until(lambda job=job: state(strict_testbed, job) == "RUNNING")
    assert state(strict_testbed, submit(strict_testbed, "-n1")) == "PENDING"


def test_the_shares_of_the_qpu_are_not(strict_testbed):
    jobs = [submit(strict_testbed, "--partition=quantum", "--gres=qpu:1") for _ in range(3)]
    until(lambda: all(state(strict_testbed, job) == "RUNNING" for job in jobs))


def test_normal_preempts_low(strict_testbed):
    low = submit(strict_testbed, "--qos=low", f"-N{WIDE}")
    until(lambda: state(strict_testbed, low) == "RUNNING")
    normal = submit(strict_testbed, f"-N{WIDE}")
    until(lambda: state(strict_testbed, normal) == "RUNNING")
    assert state(strict_testbed, low) == "PREEMPTED"


def test_jobs_do_not_grow(strict_testbed):
    job = submit(strict_testbed, "-N1")
    until(lambda: state(strict_testbed, job) == "RUNNING")
    with pytest.raises(QloomError, match="not supported"):
        strict_testbed.run("salloc", "--no-shell", "-N1", f"--dependency=expand:{job}", timeout_s=15)
