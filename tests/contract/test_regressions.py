"""Things that once went wrong, in every world where they could."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import qloom
from qloom.errors import InputError, ProgramChanged, QuantumFailed
from qloom.journal.file import FILE_NAME
from qloom.journal.history import read_history
from qloom.site import Qpu, Site
from qloom.strategies import STRATEGIES
from qloom.testing import programs
from qloom.views.accounting import account
from tests.contract import HERE
from tests.journals import as_lines


@pytest.mark.parametrize("world", HERE)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_qpu_that_will_not_come_back_fails_every_job_and_blocks_none(world, strategy):
    site = Site(qpus=(Qpu(offline=True),))
    outcome = qloom.run(programs.source(programs.three_at_once), world=world, strategy=strategy, jobs=3, site=site)
    assert len(outcome.errors) == 3
    assert all(isinstance(error, QuantumFailed) for error in outcome.errors)
    assert all(interval.state != "open" for interval in read_history(outcome.events).intervals)


PROGRAM = """
import qloom
from qloom.testing.programs import square

async def program(job):
    await job.classical(square({first}, 0.01))
    return await job.classical(square(2, 0.01))
"""


def test_a_refused_resume_leaves_the_journal_as_it_was(tmp_path):
    file = tmp_path / "changing.py"
    file.write_text(PROGRAM.format(first=1))
    whole = qloom.run(str(file), world="virtual")
    journal = whole.directory / FILE_NAME
    lines = journal.read_bytes().splitlines(keepends=True)
    last_end = max(place for place, line in enumerate(lines) if b'"task_ended"' in line)
    journal.write_bytes(b"".join(lines[:last_end]))
    file.write_text(PROGRAM.format(first=7))
    with pytest.raises(ProgramChanged, match=r"call 1 differs from the journal: it was classical"):
        raise qloom.resume("last").errors[0]
    file.write_text(PROGRAM.format(first=1))
    resumed = qloom.resume("last")
    assert resumed.errors == []
    assert resumed.result == [4]


FAILING = """
from qloom import task

@task(expected_s=1.0)
def large(number):
    return f"{{number:>3000}}"  # too long for the journal: it goes to a file

async def program(job):
    await job.classical(large({first}))
    await job.classical(large(2))
    raise ValueError("the end")
"""


def test_a_changed_program_is_found_before_it_runs_anything_also_when_a_result_was_lost_once(tmp_path):
    file = tmp_path / "failing.py"
    file.write_text(FAILING.format(first=1))
    failed = qloom.run(str(file), world="virtual")
    next((failed.directory / "results").iterdir()).unlink()
    again = qloom.resume("last")
    assert "the end" in str(again.errors[0])
    assert [event["event"] for event in as_lines(again.events)].count("result_lost") == 1
    file.write_text(FAILING.format(first=7))
    changed = qloom.resume("last")
    assert isinstance(changed.errors[0], ProgramChanged)
    assert starts(changed) == starts(again)


def starts(outcome):
    return [event["event"] for event in as_lines(outcome.events)].count("task_started")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("jobs", [1, 2])
def test_speculation_never_makes_a_job_slower(strategy, jobs):
    """Spare work that has become required counts as work when the job grows."""
    lengths = {"classical_s": [4.0, 4.0, 4.0], "score_s": 0.5, "quantum_s": 2.0, "iterations": 3}
    walls = [
        account(
            read_history(
                qloom.run(
                    "phases",
                    strategy=strategy,
                    world="virtual",
                    jobs=jobs,
                    parameters={**lengths, "speculate": speculate},
                    in_memory=True,
                ).events
            )
        ).wall_s
        for speculate in (False, True)
    ]
    competes = strategy == "weave" and jobs > 1  # it asks for nodes on behalf of spare work: within its bound
    assert walls[1] <= walls[0] * (1.05 if competes else 1.0) + 1e-6


SETS = """
import qloom

class Bag:
    def __init__(self, items):
        self.items = set(items)

def count(bag):
    return len(bag.items)

async def program(job):
    bag = Bag(f"item {number}" for number in range(30))
    counted = await job.classical(qloom.call(count, bag).needs(expected_s=1))
    await job.quantum(qloom.delay(1))
    return counted
"""


def test_objects_with_sets_are_the_same_whatever_the_hash_seed(tmp_path, qloom_home):
    (tmp_path / "sets.py").write_text(SETS)
    command = [
        str(Path(sys.executable).with_name("qloom")),
        "run",
        str(tmp_path / "sets.py"),
        "--world",
        "virtual",
        "-q",
    ]
    for seed in ("1", "2"):
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
    first, second = (path.read_bytes() for path in sorted(qloom_home.glob(f"runs/*/{FILE_NAME}")))
    assert first == second


async def asks_the_device(job):
    sample = await job.quantum({("x", "x"): -1.0, ("y", "y"): -1.0, ("x", "y"): 2.0, ("z", "z"): 0.0}, shots=1)
    return dict(sample.values)


def test_a_profile_of_several_jobs_gives_each_its_own_answers():
    real = qloom.run(asks_the_device, world="virtual", jobs=12)
    assert len({str(result) for result in real.results}) > 1
    again = qloom.run(asks_the_device, world="virtual", jobs=12, seed=99, profile="last", in_memory=True)
    assert again.results == real.results


async def holds_the_device(job):
    if job.name == "j1":
        async with job.quantum_block():
            await job.quantum(qloom.delay(1.0))
            await job.classical(programs.square(1, 40.0))
            await job.quantum(qloom.delay(1.0))
    else:
        await job.classical(programs.square(2, 5.0))
        await job.quantum(qloom.delay(1.0), or_classical=programs.square(3, 2.0))
    return job.name


def test_a_candidate_does_not_wait_for_a_device_that_another_job_holds():
    outcome = qloom.run(holds_the_device, world="virtual", strategy="workflow", jobs=2, in_memory=True)
    assert outcome.errors == []
    (choice,) = [event for event in as_lines(outcome.events) if event["event"] == "candidate"]
    assert choice["choice"] == "classical"


@pytest.mark.parametrize("strategies", ["workflow+task,coschedule", "offload,coschedule", "malleable,vqpu"])
def test_one_device_is_never_held_for_longer_than_the_run_lasts(strategies):
    outcome = qloom.run(programs.source(programs.block_of_five), world="virtual", strategy=strategies, jobs=4)
    assert outcome.errors == []
    figures = account(read_history(outcome.events))
    assert figures.qpu_s_busy - 1e-6 <= figures.qpu_s_held <= figures.wall_s + 1e-6


async def sends_and_leaves(job):
    async with job.quantum_block():
        answers = [job.quantum(qloom.delay(1.0, number)) for number in range(3)]
    return [await answer for answer in answers]


def test_a_block_holds_the_device_for_tasks_that_are_awaited_later():
    outcome = qloom.run(sends_and_leaves, world="virtual", strategy="offload", in_memory=True)
    assert outcome.result == [0, 1, 2]
    assert {event["hold"] for event in as_lines(outcome.events) if event["event"] == "quantum_queued"} == {"whole"}


def test_a_wait_for_a_qpu_is_not_called_a_wait_for_nodes():
    site = Site(nodes=6)
    outcome = qloom.run("phases", world="virtual", strategy="coschedule", jobs=2, site=site, in_memory=True)
    second = account(read_history(outcome.events), "j2")
    assert second.qpu_wait_s == pytest.approx(100.4)
    assert second.node_wait_s == 0


def test_an_outage_that_is_over_does_not_come_again_on_resume():
    site = Site(qpus=(Qpu(outages_s=((1.0, 4.0),)),))
    whole = qloom.run("phases", world="virtual", strategy="offload", site=site)
    journal = whole.directory / FILE_NAME
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) // 2]))
    resumed = qloom.resume(str(whole.directory))
    assert resumed.result == whole.result
    assert account(read_history(resumed.events)).qpu_wait_s == account(read_history(whole.events)).qpu_wait_s


async def sends_while_it_grows(job):
    if job.name == "j1":
        return await job.classical(*(programs.square(number, 30.0) for number in range(3)))
    work = job.classical(*(programs.square(number, 1.0) for number in range(3)))
    await job.quantum(qloom.delay(1.0))
    return await work


def test_growing_for_one_phase_does_not_hold_a_quantum_task_back():
    """The second job holds one node and waits five seconds for two more; its quantum task does not."""
    site = Site(nodes=4)
    outcome = qloom.run(
        sends_while_it_grows, world="virtual", strategy="malleable,malleable", jobs=2, site=site, in_memory=True
    )
    assert outcome.errors == []
    queued_us = [e["at_us"] for e in as_lines(outcome.events) if e["event"] == "quantum_queued" and e["job"] == "j2"]
    asked_us = [
        e["at_us"]
        for e in as_lines(outcome.events)
        if e["event"] == "requested" and e.get("grow") and e["job"] == "j2"
    ]
    assert queued_us[0] < asked_us[0] + 5_000_000


def test_refused_input_leaves_no_run_behind(qloom_home):
    good = qloom.run(programs.source(programs.loop), world="virtual")
    refused = qloom.run(programs.source(programs.too_wide), world="virtual")
    assert refused.errors[0].exit_code == 2
    assert [path.name for path in (qloom_home / "runs").iterdir()] == [good.directory.name]


def test_a_driver_that_there_is_not_is_refused():
    qloom.run(programs.source(programs.loop), world="virtual")
    with pytest.raises(InputError, match="unknown driver 'nowhere'"):
        qloom.resume("last", driver="nowhere")


@pytest.mark.parametrize("world", HERE)
def test_a_device_that_is_too_small_says_both_sizes(world):
    site = Site(qpus=(Qpu(qubits=2),))
    (error,) = qloom.run(programs.source(programs.loop), world=world, site=site, in_memory=True).errors
    assert "the QUBO has 3 variables, qpu takes up to 2" in error.message
    assert error.exit_code == 2


def test_a_problem_goes_to_a_qpu_that_it_fits_on():
    async def program(job):
        await job.quantum({("a", "b"): 1.0, ("b", "c"): 1.0})

    site = Site(qpus=(Qpu("small", qubits=2), Qpu("big")))
    events = qloom.run(program, world="virtual", strategy="offload", site=site, in_memory=True).events
    assert [event["device"] for event in as_lines(events) if event["event"] == "quantum_queued"] == ["big"]
