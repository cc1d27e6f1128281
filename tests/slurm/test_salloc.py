"""The `salloc` processes of a driver that is killed with SIGKILL, and what they hold or ask for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm import programs
from tests.slurm.driver import left, queue, start, wait_for_event, wait_until

pytestmark = pytest.mark.slow
END_S = 30.0  # within which no salloc may be left: the controller is there
KILLS = 5  # of several sallocs each: one in ten was left before


def sallocs_of(driver: int) -> list[Path]:
    """The `salloc` processes of a driver, as directories in /proc."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (process / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # it has just ended
        if name == "salloc" and int(rest.split()[1]) == driver:
            found.append(process)
    return found


def kill(driver: subprocess.Popen[str]) -> None:
    """Kill a driver with no chance to clean up, and wait until its sallocs have ended."""
    sallocs = sallocs_of(driver.pid)
    assert sallocs
    driver.kill()
    driver.communicate()
    wait_until(lambda: not any(salloc.exists() for salloc in sallocs), "the end of all sallocs", END_S)


def accounted(testbed, jobs: list[str]) -> set[str]:
    """The states that jobs have in accounting, with all their components, once they have ended."""

    def states() -> set[str] | None:
        said = testbed.run("sacct", "-X", "-n", "-P", "-j", ",".join(jobs), "-o", "State").splitlines()
        found = {line.partition(" ")[0] for line in said}
        return None if not found or found & {"RUNNING", "PENDING"} else found

    return wait_until(states, "the end of the jobs in accounting")


@pytest.fixture
def cluster(slurm_env):
    yield slurm_env
    wait_until(lambda: left(slurm_env) == {}, "an empty queue")


def test_allocations_of_a_killed_driver_are_cancelled_and_no_salloc_is_left(cluster):
    """One in ten was left, spinning: its command had ended while it told the controller of its own SIGTERM."""
    jobs = []
    for number in range(KILLS):
        driver = requests_forever(f"held-{number}", 3)
        jobs += [driver.stdout.readline().strip() for _ in range(3)]
        kill(driver)
    assert accounted(cluster, jobs) == {"CANCELLED"}


def test_requests_of_a_killed_driver_leave_the_queue_and_no_salloc_is_left(cluster):
    cluster.run("salloc", "--no-shell", "-Q", "-J", "others", "-N3", "--exclusive")
    others = set(queue(cluster))
    for number in range(KILLS):
        driver = requests_forever(f"waiting-{number}", 3)
        wait_until(lambda: len(set(queue(cluster)) - others) == 6, "three pending het jobs")
        kill(driver)
        wait_until(lambda: set(left(cluster)) == others, "the end of the requests")
    cluster.run("scancel", "-n", "others")


def requests_forever(name: str, count: int) -> subprocess.Popen[str]:
    """A driver that holds or waits for ever."""
    words = [sys.executable, "-m", "tests.slurm.requests_forever", name, str(count)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("strategy", ["coschedule", "malleable", "split"])
def test_a_whole_driver_that_is_killed_leaves_no_salloc(cluster, qloom_home, strategy):
    source = programs.source(programs.long_phase)
    driver = start("run", source, "--world", "slurm", "--strategy", strategy, "-q")
    wait_for_event(qloom_home, "task_started")
    held = [id.partition("+")[0] for id in left(cluster)]
    kill(driver)
    wait_until(lambda: left(cluster) == {}, "an empty queue")
    assert accounted(cluster, held) == {"CANCELLED"}
