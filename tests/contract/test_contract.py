"""The keystone: the same programs, under every strategy, in every world, with the same results and no leak."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from pathlib import Path

import pytest

import qloom
from qloom.errors import NeedError, PayloadError, TaskFailed
from qloom.journal.file import FILE_NAME, read_events
from qloom.journal.history import read_history
from qloom.site import Qpu, Site
from qloom.strategies import STRATEGIES
from qloom.views.accounting import account
from tests.contract import HERE, programs
from tests.journals import as_lines

STRATEGY_NAMES = [*STRATEGIES, "malleable+share", "workflow+task"]
DOWN = Site(qpus=(Qpu(offline=True),))
EXPECTED = {}


def run(program, world, strategy, log="", **more):
    parameters = {"log": str(log)} if log else {}
    return qloom.run(programs.source(program), world=world, strategy=strategy, parameters=parameters, **more)


def expected(program):
    """What a program gives in virtual time under the simplest strategy: everything else must agree."""
    if program not in EXPECTED:
        EXPECTED[program] = run(program, "virtual", "offload", in_memory=True).result
    return EXPECTED[program]


every_world = pytest.mark.parametrize("world", HERE)
every_strategy = pytest.mark.parametrize("strategy", STRATEGY_NAMES)


@every_world
@every_strategy
@pytest.mark.parametrize("program", programs.GOOD, ids=lambda program: program.__name__)
def test_same_result_everywhere_and_nothing_left(program, world, strategy):
    outcome = run(program, world, strategy, in_memory=True)
    assert outcome.errors == []
    assert outcome.result == expected(program)
    history = read_history(outcome.events)
    assert all(interval.state != "open" for interval in history.intervals)
    figures = account(history)
    assert 0 < figures.node_s_busy <= figures.node_s_held + 1e-6
    if strategy not in ("coschedule", "vqpu", "malleable+share"):
        assert figures.qpu_s_held >= figures.qpu_s_busy - 1e-6


@every_world
@every_strategy
def test_two_jobs_at_once_get_the_results_they_get_alone(world, strategy):
    options = {"patience_s": 0.3} if strategy.startswith("malleable") else {}
    outcome = run(programs.loop, world, strategy, jobs=2, options=options, in_memory=True)
    assert outcome.results == [expected(programs.loop)] * 2


@every_world
def test_what_is_queued_ahead_is_granted_after_the_one_before_has_ended_or_withdrawn_before(world):
    outcome = run(programs.loop, world, "split", jobs=2, in_memory=True)
    assert outcome.errors == []
    place = {
        (event["event"], event["lease"]): n for n, event in enumerate(as_lines(outcome.events)) if "lease" in event
    }
    ahead = [event for event in as_lines(outcome.events) if event["event"] == "queued_ahead"]
    assert len(ahead) == 2 * (1 + 3), "one behind each sub-job"
    for event in ahead:
        lease, ended = event["lease"], place["released", event["after"]]
        if ("granted", lease) in place:
            assert ended < place["requested", lease] < place["granted", lease]
        else:
            assert ("requested", lease) not in place
            assert place["withdrawn", lease] < ended


@every_world
@every_strategy
def test_a_candidate_runs_classically_while_the_device_is_down(world, strategy):
    if strategy in ("coschedule", "vqpu", "malleable+share"):
        pytest.skip("this strategy holds a QPU before anything runs")
    outcome = run(programs.candidate, world, strategy, site=DOWN, in_memory=True)
    assert outcome.result == [36, 4]
    (choice,) = [event for event in as_lines(outcome.events) if event["event"] == "candidate"]
    assert choice["choice"] == "classical"
    assert "not available" in choice["reason"]


@every_world
@every_strategy
def test_a_failing_task_is_named_and_the_rest_is_released(world, strategy):
    outcome = run(programs.fails_late, world, strategy, in_memory=True)
    (error,) = outcome.errors
    assert isinstance(error, TaskFailed)
    assert "fails" in error.message
    assert "no luck" in error.message
    assert error.job == "j1"
    history = read_history(outcome.events)
    assert all(interval.state != "open" for interval in history.intervals)
    done = [event for event in as_lines(outcome.events) if "work" in event and event.get("state") == "done"]
    assert len(done) <= 2, "the long tasks were waited for"


@every_world
@pytest.mark.parametrize(("program", "error"), [(programs.no_qubo, PayloadError), (programs.too_wide, NeedError)])
def test_what_no_world_can_do_is_refused(program, error, world):
    (refused,) = run(program, world, "offload", in_memory=True).errors
    assert isinstance(refused, error)
    assert refused.exit_code == 2


def programs_to_cut():
    """All in virtual time; locally the loop under every strategy and each fifth other pair (QLOOM_PAIRS=all: all)."""
    for number, (program, strategy) in enumerate(itertools.product(programs.GOOD, STRATEGY_NAMES)):
        names = f"{program.__name__}-{strategy}"
        yield pytest.param(program, "virtual", strategy, id=f"{names}-virtual")
        if os.environ.get("QLOOM_PAIRS") == "all" or program is programs.loop or number % 5 == 0:
            yield pytest.param(program, "local", strategy, id=f"{names}-local", marks=pytest.mark.slow)


@pytest.mark.parametrize(("program", "world", "strategy"), list(programs_to_cut()))
def test_cut_off_anywhere_and_resumed(program, world, strategy, tmp_path):
    """A journal that ends anywhere, even in the middle of a line, is gone on with; nothing that ended runs again."""
    log = tmp_path / "log"
    whole = run(program, world, strategy, log)
    journal = whole.directory / FILE_NAME
    lines = journal.read_bytes().splitlines(keepends=True)
    cuts = range(1, len(lines), 1 if world == "virtual" else max(1, len(lines) // 3))
    for cut in cuts:
        journal.write_bytes(b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
        known = {
            e["work"]: e for e in as_lines(read_events(whole.directory)) if e.get("state") == "done" and "work" in e
        }
        log.unlink(missing_ok=True)
        resumed = qloom.resume(str(whole.directory))
        assert resumed.errors == [], f"cut at {cut}"
        assert resumed.result == whole.result
        ended = Counter(e["work"] for e in as_lines(resumed.events) if e.get("state") == "done" and "work" in e)
        assert all(ended[work] == 1 for work in known), "a task whose end was in the journal ran again"


@every_world
def test_resuming_a_finished_run_runs_nothing(world):
    whole = run(programs.loop, world, "workflow")
    again = qloom.resume("last")
    assert again.result == whole.result
    new = [event["event"] for event in as_lines(again.events[len(whole.events) :])]
    assert new == []


def test_the_same_seed_gives_the_same_journal_byte_for_byte(tmp_path):
    journals = [
        (run(programs.loop, "virtual", strategy, jobs=2).directory / FILE_NAME).read_bytes()
        for strategy, _ in itertools.product(["malleable", "split"], range(2))
    ]
    assert journals[0] == journals[1]
    assert journals[2] == journals[3]


def test_everything_in_a_run_is_private():
    outcome = run(programs.sharing, "local", "offload")
    for path in [outcome.directory, *outcome.directory.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0 or not path.is_dir(), path
    assert outcome.directory.stat().st_mode & 0o777 == 0o700
    shared = list(Path(outcome.directory, "shared").iterdir())
    assert len(shared) == 1, "shared data is written once"
