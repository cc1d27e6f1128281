"""Journals that were written before can be read, compared with and gone on with."""

from __future__ import annotations

import json

import pytest

from qloom.journal.file import read_events
from qloom.runs.resume import resume
from tests.golden.kept_journals import FOLDER, KEPT, RESULT, figures_of, kept_figures, unpack
from tests.journals import as_lines
from tests.unit.cli.conftest import cli  # noqa: F401

KILLED = [name for name in KEPT if name.startswith("killed")]
WORLDS = {"local", "virtual", "slurm-here", "slurm-in-job", "slurm-beside", "slurm-chain-split"}


def test_there_is_one_of_each_world_and_driver():
    assert {*KEPT} >= WORLDS
    assert {name.split("-")[1] for name in KILLED} == {"local", "virtual"}
    drivers = {name: {event.get("event") for event in as_lines(read_events(FOLDER / name))} for name in KEPT}
    assert "driver_started" in drivers["slurm-beside"] & drivers["slurm-in-job"]


@pytest.mark.parametrize("name", KEPT)
def test_what_it_says_of_its_run_is_what_it_said(name, qloom_home):
    figures, kept = figures_of(unpack(name, qloom_home)), kept_figures()[name]
    said_then = {figure: value for figure, value in figures.items() if figure in kept}  # there may be new figures
    assert json.loads(json.dumps(said_then)) == kept
    assert figures["results"] == ([] if name in KILLED else [RESULT])


@pytest.mark.parametrize("name", KEPT)
def test_the_command_line_shows_and_explains_it(name, qloom_home, tmp_path, cli):  # noqa: F811
    unpack(name, qloom_home)
    shown = cli("show", name, "--json")
    assert shown.code == 0, shown.err
    total = json.loads(shown.out)
    assert total["node_s_held"] == pytest.approx(kept_figures()[name]["node_s_held"], abs=1e-3)
    for words in (["show", name], ["explain", name], ["timeline", name, "-o", str(tmp_path / "t.html")], ["runs"]):
        said = cli(*words)
        assert (said.code, bool(said.out.strip())) == (0, True), f"{words}: {said.err}"


def test_strategies_are_compared_with_what_it_measured(qloom_home, cli):  # noqa: F811
    unpack("slurm-here", qloom_home)
    program = str(FOLDER / "kept_program.py")
    said = cli("compare", program, "--world", "virtual", "--profile", "slurm-here", "--json")
    assert said.code == 0, said.err
    assert "weave" in said.out


@pytest.mark.parametrize("name", KILLED)
def test_a_run_that_was_killed_goes_on_and_nothing_runs_again(name, qloom_home):
    directory = unpack(name, qloom_home)
    before = read_events(directory)
    done = {event["work"] for event in as_lines(before) if event.get("state") == "done" and "work" in event}
    outcome = resume(str(directory))
    assert outcome.result == RESULT
    begun = [
        event["work"]
        for event in as_lines(outcome.events[len(before) :])
        if event["event"] in ("task_started", "quantum_queued")
    ]
    assert done
    assert begun
    assert not done & {*begun}, "work whose end is in the journal was run again"
