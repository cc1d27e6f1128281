"""Workers of the local world: they end with their driver, and keep nothing of a task."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import qloom
from qloom import call
from qloom.journal import home
from qloom.site import Site
from tests.unit.processes import DEADLINE_S, is_alive, wait_until

DRIVER = """
import os, qloom, sys
from qloom import command, task, call

@task
def tell(directory):
    with open(os.path.join(directory, str(os.getpid())), "w"):
        pass

async def program(job, directory=""):
    await job.classical(tell(directory), call(tell.function, directory).needs(cpus=1))
    script = f"touch {directory}/$$; exec sleep 1000"
    await job.classical(command("sh", "-c", script), call(spin, directory), command("sh", "-c", script, "again"))

def spin(directory):
    open(os.path.join(directory, f"{os.getpid()}"), "w").close()
    open(os.path.join(directory, "spinning"), "w").close()
    while True:
        pass
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_driver(sent, tmp_path):
    program, pids = tmp_path / "prog.py", tmp_path / "pids"
    program.write_text(DRIVER)
    pids.mkdir()
    qloom_script = Path(sys.executable).with_name("qloom")
    driver = subprocess.Popen(
        [str(qloom_script), "run", str(program), "--set", f"directory={pids}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:

        def all_started():
            assert driver.poll() is None, driver.communicate()
            return (pids / "spinning").exists() and len(list(pids.iterdir())) >= 5

        wait_until(all_started, "the tasks did not start")
        running = [int(path.name) for path in pids.iterdir() if path.name.isdigit()]
        assert sum(map(is_alive, running)) >= 3
        driver.send_signal(sent)
        _, errors = driver.communicate(timeout=DEADLINE_S)
        for pid in running:
            wait_until(lambda pid=pid: not is_alive(pid), f"process {pid} outlived the driver")
    finally:
        driver.kill()
        driver.communicate()
    if sent is signal.SIGKILL:
        assert driver.returncode == -signal.SIGKILL
    else:
        assert driver.returncode == 130
        assert errors == f"qloom: interrupted: continue with qloom resume {home.find_run('last').name}\n"


def wander(directory):
    os.environ["WANDERED"] = "yes"
    os.chdir(directory)


def whereabouts():
    return os.getcwd(), os.environ.get("WANDERED")


async def wandering(job, directory):
    await job.classical(call(wander, directory))
    (before,) = await job.classical(call(whereabouts))
    return before


def test_a_task_leaves_no_trace_in_its_worker_for_the_next_one(tmp_path):
    outcome = qloom.run(wandering, site=Site(nodes=1), parameters={"directory": str(tmp_path)}, in_memory=True)
    assert outcome.result == (os.getcwd(), None)
