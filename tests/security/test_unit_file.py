"""The systemd unit: a broker under its system call filter solves, and what it must not do fails."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.security.seccomp import allowed, settings
from tests.security.served import serve
from tests.unit.devices.examples import BELL, QUBO

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "contrib" / "qloom-broker.service"
UNDER_FILTER = (sys.executable, "-m", "tests.security.seccomp", str(UNIT))
CONFIG = """
[[devices]]
kind = "annealing"
name = "anneal"
set_up_s = 0
[[devices]]
kind = "process"
name = "apart"
device = { kind = "qaoa", set_up_s = 0 }
"""


def has_libseccomp():
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return False
    return True


needs_libseccomp = pytest.mark.skipif(not has_libseccomp(), reason="needs libseccomp.so.2")


@needs_libseccomp
def test_devices_solve_under_the_units_filter(tmp_path):
    with serve(tmp_path, CONFIG, wrap=UNDER_FILTER) as broker:
        large = {"linear": [[i, 1.0] for i in range(1000)]}
        for kind, body, device in (("qubo", QUBO, "anneal"), ("qubo", large, "anneal"), ("openqasm3", BELL, "apart")):
            answer = broker.post({"kind": kind, "body": body, "device": device, "shots": 10})
            assert answer.status_code == 201, answer.text
            view = broker.ended(answer.json()["id"])
            assert view["state"] == "done", view


@needs_libseccomp
@pytest.mark.parametrize(
    "attempt",
    [
        "os.setpriority(os.PRIO_PROCESS, 0, -20)",
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
        "os.chroot('/')",
        "os.setuid(0)",
        "os.chown('/', 0, 0)",
        "socket.socket(socket.AF_PACKET)",
        "socket.socket(socket.AF_NETLINK)",
    ],
)
def test_what_a_broker_never_does_is_refused(attempt):
    program = f"import os, socket\ntry:\n    {attempt}\nexcept PermissionError:\n    raise SystemExit(7)\n"
    done = subprocess.run([*UNDER_FILTER, sys.executable, "-c", program], timeout=60)
    assert done.returncode == 7


def test_memory_and_processes_are_limited():
    given = settings(UNIT)
    for key in ("MemoryMax", "TasksMax", "LimitCORE"):
        assert given[key], key
    assert given["OOMPolicy"] == ["continue"], "the kernel ends a solver, and the broker goes on"
    assert given["SystemCallErrorNumber"] == ["EPERM"], "a call that is not allowed fails, and kills nobody"


def test_no_group_that_is_taken_away_is_needed_for_memory_of_solvers():
    calls = allowed(UNIT)
    for needed in ("mbind", "prlimit64", "sched_getaffinity", "set_mempolicy"):
        assert needed in calls
    for never in ("ptrace", "mount", "bpf", "reboot", "init_module", "setuid", "chown", "kexec_load"):
        assert never not in calls


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_can_read_the_unit(tmp_path):
    unit = tmp_path / "qloom-broker.service"
    unit.write_text(UNIT.read_text().replace("/opt/qloom/bin/qloom", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    about = [line for line in done.stderr.splitlines() if unit.name in line]
    assert about == []
