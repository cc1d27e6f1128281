"""Where the driver lives: in a job of its own, or in each job of a chain."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from qloom.journal import home
from qloom.journal.event import Event
from qloom.journal.file import FILE_NAME
from qloom.journal.history import read_history
from qloom.programs.load import load_program
from qloom.runs.runner import Plan
from qloom.runs.submit import submit
from qloom.strategies import STRATEGIES
from qloom.testing import contracts as contract
from qloom.testing import programs
from qloom.views.accounting import account
from qloom.views.explain import explain
from tests.journals import as_lines
from tests.slurm import programs as slurm_programs
from tests.slurm.driver import ended, result, submitted, wait_until
from tests.slurm.waiting import until

ASK_DIFFERENTLY = (programs.loop, programs.block_of_five, programs.wide)  # in turn, QPU kept, several nodes a task
IN_A_CHAIN = [name for name, strategy in STRATEGIES.items() if strategy.chains]
LOOP_LINKS = {"workflow": 3 * 3, "split": 1 + 3}  # a job for each of three phases, or for each block and one before


def qloom(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "qloom", *words], capture_output=True, text=True, check=False, timeout=120
    )


def links(events: list[Event]) -> int:
    """How many jobs a chain was handed on to."""
    handed_on = [
        event for event in as_lines(events) if event["event"] == "run_ended" and event["state"] == "handed on"
    ]
    jobs = [event["engine_id"] for event in handed_on]
    assert len(jobs) == len(set(jobs))
    return len(jobs)


def waits_are_told_as_waits(events: list[dict]) -> None:
    """Between two jobs of a chain a run waits for Slurm: nothing was killed."""
    history = read_history(events)
    assert history.gaps == []
    assert all(wait_us >= 0 for wait_us in [wait.end_us - wait.begin_us for wait in history.waits])
    said = "\n".join(explain(events))
    assert "handed to Slurm job" in said
    assert not any(word in said for word in ("interrupted", "killed", "resumed"))


@pytest.fixture
def empty_cluster(wide_slurm_env):
    """A cluster that is empty after a test, too, as soon as the last driver has gone."""
    yield wide_slurm_env
    until(lambda: wide_slurm_env.run("squeue", "-h") == "")


@pytest.mark.slow
@pytest.mark.usefixtures("empty_cluster")
def test_drivers_in_jobs_of_their_own_give_the_results_of_every_other_world():
    """All programs of the contract, one after the other in the job of each strategy; the strategies side by side."""
    runs = {strategy: submitted(programs.source(programs.all_good), strategy, "in-job") for strategy in STRATEGIES}
    expected = [contract.expected(program) for program in programs.GOOD]
    for strategy, name in runs.items():
        assert result(name, ended(name)) == expected, strategy


@pytest.mark.slow
@pytest.mark.usefixtures("empty_cluster")
def test_chains_give_the_results_of_every_other_world():
    """All programs of the contract, side by side, each going on from job to job."""
    pairs = [(program, strategy) for program in programs.GOOD for strategy in IN_A_CHAIN]
    runs = [submitted(programs.source(program), strategy, "chain") for program, strategy in pairs]
    for (program, strategy), name in zip(pairs, runs, strict=True):
        events = ended(name)
        assert result(name, events) == contract.expected(program), (program.__name__, strategy)
        works = [
            event["work"] for event in as_lines(events) if event["event"] == "task_ended" and event["state"] == "done"
        ]
        assert len(works) == len(set(works)), "a link did again what the journal held"
        if program is programs.loop:
            assert links(events) == LOOP_LINKS[strategy]
            waits_are_told_as_waits(events)


@pytest.mark.slow
def test_a_centre_s_policies_change_nothing(strict_slurm_env):
    """All programs in jobs; in chains those that differ in what a link asks Slurm for (QLOOM_PAIRS=all: all).

    Policies bear on requests alone, and each link of a chain starts Python: the others take half as long again.
    """
    runs = {strategy: submitted(programs.source(programs.all_good), strategy, "in-job") for strategy in STRATEGIES}
    chained = programs.GOOD if os.environ.get("QLOOM_PAIRS") == "all" else ASK_DIFFERENTLY
    pairs = [(program, strategy) for program in chained for strategy in IN_A_CHAIN]
    chains = {pair: submitted(programs.source(pair[0]), pair[1], "chain") for pair in pairs}
    expected = [contract.expected(program) for program in programs.GOOD]
    for strategy, name in runs.items():
        assert result(name, ended(name)) == expected, strategy
    for (program, strategy), name in chains.items():
        assert result(name, ended(name)) == contract.expected(program), (program.__name__, strategy)
    until(lambda: strict_slurm_env.run("squeue", "-h") == "")


QUICK = (
    *("--nodes", "3", "--slurm", "handover_s=2", "--set", "iterations=2"),
    *("--set", "classical_s=[0.5, 0.5, 0.5]", "--set", "quantum_s=0.5", "--set", "score_s=0.5"),
)


def submit_phases(*words: str) -> str:
    """`qloom submit phases`; the name of the run."""
    done = qloom("submit", "phases", *QUICK, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["run"]


@pytest.mark.slow
@pytest.mark.parametrize("driver", [(), ("--driver", "in-job")], ids=["default", "in-job"])
def test_two_submissions_that_need_all_nodes_do_not_block_each_other(driver, slurm_env):
    names = [submit_phases("--strategy", "workflow", *driver) for _ in range(2)]
    for name in names:
        assert ended(name)[-1].state == "done"
    until(lambda: slurm_env.run("squeue", "-h") == "")


@pytest.mark.slow
def test_drivers_of_all_kinds_share_three_nodes_and_none_blocks_another(slurm_env):
    words = [("--strategy", name) for name in ("coschedule", "workflow", "malleable", "split", "weave")]
    words += [("--strategy", name, "--driver", "in-job") for name in ("workflow", "split")]
    words += [("--strategy", name, "--driver", "beside", "--nodes", "2") for name in ("workflow", "weave")]
    runs = {submit_phases(*each): each for each in words}
    for name, each in runs.items():
        assert ended(name)[-1].state == "done", each
    until(lambda: slurm_env.run("squeue", "-h") == "")


EXIT_S = 3.0  # a driver's job goes on after its last event; not read from the run, where a lost end would look so too


def sacct_node_s(testbed, run: str) -> tuple[float, float]:
    """Node-seconds that Slurm has of a run, and by how much they may be off: Slurm knows whole seconds."""
    names = "JobName,Partition,State,NNodes,AllocCPUS,ElapsedRaw"

    def over():
        said = testbed.run("sacct", "-D", "-X", "-n", "-P", "-o", names)
        rows = [line.split("|") for line in said.splitlines() if line.startswith(f"qloom.{run}.")]
        return rows if rows and not any(row[2] in ("RUNNING", "PENDING") for row in rows) else None

    rows = [row for row in wait_until(over, "the end of all jobs in accounting") if row[1] == "compute"]
    cpus = testbed.settings.cpus
    nodes = [min(int(row[3]), int(row[4]) / cpus) for row in rows]  # a driver beside its allocations has a core
    held_s = sum(count * int(row[5]) for count, row in zip(nodes, rows, strict=True))
    after_s = [0.0 if ".j1." in row[0] else EXIT_S for row in rows]
    return held_s, sum(count * (1 + more_s) for count, more_s in zip(nodes, after_s, strict=True))


@pytest.mark.slow
def test_the_journal_and_slurm_s_accounting_agree_for_every_driver_and_strategy(empty_cluster):
    drivers = {"in-job": list(STRATEGIES), "beside": list(STRATEGIES), "chain": IN_A_CHAIN}
    source = slurm_programs.source(slurm_programs.phases_of_each_kind)
    pairs = [(driver, strategy) for driver, strategies in drivers.items() for strategy in strategies]
    runs = {submitted(source, strategy, driver): (driver, strategy) for driver, strategy in pairs}
    for name, pair in runs.items():
        events = ended(name)
        assert events[-1].as_dict()["state"] == "done", pair
        told_s = account(read_history(events)).node_s_held
        held_s, off_s = sacct_node_s(empty_cluster, name)
        assert abs(told_s - held_s) <= off_s, (*pair, told_s, held_s, off_s)


@pytest.mark.slow
def test_a_submitted_run_waits_its_turn_and_nobody_takes_it_over(slurm_env):
    others = ("sbatch", "--parsable", "--exclusive", "--nodes=3", "--output=/dev/null", "--wrap=sleep 600")
    before = slurm_env.run(*others).strip()
    until(lambda: slurm_env.run("squeue", "-h", "-j", before, "-o", "%T") == "RUNNING\n")
    plan = Plan(load_program(programs.source(programs.loop)), strategy="coschedule", world="slurm")
    run = submit(plan, "in-job")
    said = qloom("explain", run.run).stdout.replace("\n", " ")
    assert f"submitted as Slurm job {run.job}" in said
    assert "resume" not in said
    assert home.list_runs()[0]["state"] == "submitted"
    refused = qloom("resume", run.run)
    assert refused.returncode == 2
    assert f"(it is Slurm job {run.job}: scancel {run.job} first)" in refused.stderr
    slurm_env.run("scancel", before)
    events = ended(run.run)
    assert result(run.run, events) == contract.expected(programs.loop)
    assert f"handed to Slurm job {run.job} at" in qloom("explain", run.run).stdout
    used = account(read_history(events))
    granted = next(event for event in as_lines(events) if event["event"] == "granted")
    assert 0 < used.node_wait_s <= granted["at_us"] / 1e6, "from the submission to the start of the job"
    assert used.node_s_held == pytest.approx(used.wall_s * plan.site.nodes)
    written = (home.find_run(run.run) / FILE_NAME).read_bytes()
    again = qloom("resume", run.run)
    assert again.returncode == 0, again.stderr
    assert "this run is done: nothing to resume" in again.stderr
    assert (home.find_run(run.run) / FILE_NAME).read_bytes() == written


@pytest.mark.usefixtures("slurm_env")
def test_a_dry_run_shows_the_script_and_submits_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path))
    shown = qloom("submit", "phases", "--strategy", "coschedule", "--slurm", "time_limit=10", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "#SBATCH hetjob" in shown.stdout
    assert shown.stdout.index("--nodes=3") < shown.stdout.index("--gres=qpu:8")
    assert shown.stdout.count("#SBATCH --time=10") == 2
    shown = qloom("submit", "phases", "--nodes", "2", "--driver", "beside", "--dry-run")
    assert "#SBATCH --ntasks=1" in shown.stdout, "a core, and no node for itself"
    assert "--exclusive" not in shown.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("slurm_env")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--strategy", "malleable", "--driver", "chain"), "holds nodes from one phase to the next"),
        (("--driver", "nowhere"), "unknown driver 'nowhere'"),
        (("--nodes", "99"), "99"),
        (("--driver", "beside"), "a job may hold 3 nodes, and beside its driver the partition has 2"),
    ],
)
def test_what_cannot_be_submitted_is_refused_in_one_line(words, said, monkeypatch, tmp_path):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path))
    done = qloom("submit", "phases", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
