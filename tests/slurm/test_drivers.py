"""Where the driver lives: in a job of its own, or in each job of a chain."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from qloom.journal import home
from qloom.journal.file import read_events
from qloom.journal.results import ResultStore
from qloom.runner import run

SMALL = {"iterations": 2, "classical_s": [0.3, 0.1, 0.1], "score_s": 0.1, "quantum_s": 0.3}
# Drivers that hold one node and wait for more could wait for each other, so these go one at a time.
TOGETHER = [["coschedule", "offload", "vqpu", "malleable"], ["workflow"], ["split"], ["weave"]]
END_S = 240.0


def qloom(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "qloom", *words], capture_output=True, text=True, check=False, timeout=120
    )


def submit(*words: str) -> str:
    settings = [word for name, value in SMALL.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    done = qloom("submit", "phases", *words, *settings, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["run"]


def ended(name: str) -> list[dict]:
    """The events of a run, once the last of its drivers has ended."""
    until_s = time.monotonic() + END_S
    while time.monotonic() < until_s:
        events = read_events(home.find_run(name))
        if events[-1]["event"] == "run_ended" and events[-1]["state"] != "handed on":
            return events
        time.sleep(0.2)
    pytest.fail(f"{name} did not end: {events[-3:]}, {qloom('explain', name).stdout}")


def result(name: str, events: list[dict]) -> object:
    (done,) = [event for event in events if event["event"] == "job_ended" and event["state"] == "done"]
    return ResultStore(home.find_run(name) / "results").load(done["result"])


def jobs_left() -> str:
    return subprocess.run(["squeue", "-h", "--me"], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.slow
@pytest.mark.usefixtures("slurm_env")
@pytest.mark.parametrize("strategies", TOGETHER, ids="-".join)
def test_a_driver_in_its_own_job_gives_the_results_of_every_other_world(strategies, monkeypatch, tmp_path):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path))
    expected = run("phases", world="virtual", parameters=SMALL, in_memory=True).result
    runs = {strategy: submit("--strategy", strategy) for strategy in strategies}
    for strategy, name in runs.items():
        events = ended(name)
        assert events[-1]["state"] == "done", (strategy, events[-1])
        assert result(name, events) == expected
    _wait_until_empty()


@pytest.mark.slow
@pytest.mark.usefixtures("slurm_env")
@pytest.mark.parametrize("strategy", ["workflow", "split"])
def test_a_chain_goes_on_from_job_to_job_without_a_driver(strategy, monkeypatch, tmp_path):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path))
    name = submit("--strategy", strategy, "--driver", "chain")
    events = ended(name)
    assert events[-1]["state"] == "done"
    assert result(name, events) == run("phases", world="virtual", parameters=SMALL, in_memory=True).result
    jobs = [event["engine_id"] for event in events if event["event"] == "run_ended" and event["state"] == "handed on"]
    blocks = 2 * SMALL["iterations"] + SMALL["iterations"] if strategy == "workflow" else 1 + SMALL["iterations"]
    assert len(jobs) == len(set(jobs)) == blocks
    works = [event["work"] for event in events if event["event"] == "task_ended" and event["state"] == "done"]
    assert len(works) == len(set(works)), "a link did again what the journal held"
    _wait_until_empty()


def _wait_until_empty() -> None:
    until_s = time.monotonic() + 30
    while jobs_left() and time.monotonic() < until_s:
        time.sleep(0.2)
    assert not jobs_left()


@pytest.mark.usefixtures("slurm_env")
def test_a_dry_run_shows_the_script_and_submits_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path))
    shown = qloom("submit", "phases", "--strategy", "coschedule", "--slurm", "time_limit=10", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "#SBATCH hetjob" in shown.stdout
    assert shown.stdout.index("--nodes=3") < shown.stdout.index("--gres=qpu:8")
    assert shown.stdout.count("#SBATCH --time=10") == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("slurm_env")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--strategy", "malleable", "--driver", "chain"), "holds nodes from one phase to the next"),
        (("--driver", "nowhere"), "no driver is called 'nowhere'"),
        (("--nodes", "99"), "99"),
    ],
)
def test_what_cannot_be_submitted_is_refused_in_one_line(words, said, monkeypatch, tmp_path):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path))
    done = qloom("submit", "phases", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
