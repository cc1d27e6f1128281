"""The workflow strategy by StreamFlow: the same results and the same journal as by the built-in engine."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

import qloom
from qloom.errors import InputError
from qloom.export.crate import write_crate
from qloom.journal import home
from qloom.journal.accounting import account, read_history
from qloom.journal.file import read_events
from qloom.programs.load import load_program
from qloom.runner import Plan
from qloom.streamflow.engine import execute
from tests.export.crates import require_sound
from tests.streamflow.workflows import ADDING, until

PARAMETERS = {"blobs": 200, "iterations": 2, "threshold": 0.95, "plot": "", "speculate": False}
OF_THE_WORLD = ("worker_started", "reaped")


def plan(**said):
    return Plan(
        load_program("clustering"), parameters=dict(PARAMETERS), **{"strategy": "workflow", "seed": 5, **said}
    )


def works(outcome):
    return {event["work"] for event in outcome.events if event["event"] in ("task_ended", "quantum_ended")}


def on(outcome, name):
    """The nodes that tasks of a name ran on."""
    return [event["nodes"] for event in outcome.events if event["event"] == "task_started" and event["name"] == name]


@pytest.mark.slow
def test_the_same_result_and_journal_as_the_built_in_engine(streamflow, tmp_path):
    by_qloom = qloom.run("clustering", parameters=dict(PARAMETERS), strategy="workflow", seed=5)
    by_streamflow = execute(plan())
    assert by_streamflow.errors == []
    assert by_streamflow.results == by_qloom.results
    assert works(by_qloom) <= works(by_streamflow)
    kinds = [{event["event"] for event in run.events} - set(OF_THE_WORLD) for run in (by_qloom, by_streamflow)]
    assert kinds[0] == kinds[1]
    times = [event["at_us"] for event in by_streamflow.events]
    assert times == sorted(times)
    figures = account(read_history(by_streamflow.events))
    assert figures.node_s_held > figures.node_s_busy > 0
    assert figures.qpu_s_held == pytest.approx(figures.qpu_s_busy)
    assert figures.qpu_s_busy > 0
    assert by_streamflow.events[0]["engine"] == "streamflow"
    crate = require_sound(write_crate(by_streamflow.run, tmp_path / "crate"))
    assert "streamflow-j1.zip" in crate
    again = qloom.run("clustering", parameters=dict(PARAMETERS), strategy="workflow", seed=5, world="virtual",
                      profile=by_streamflow.run)  # fmt: skip
    assert again.result["labels_digest"] == by_qloom.result["labels_digest"]


@pytest.mark.slow
def test_on_slurm_each_step_goes_where_it_belongs(site):
    by_qloom = qloom.run("clustering", parameters=dict(PARAMETERS) | {"iterations": 1}, strategy="workflow", seed=5)
    one = plan(world="slurm")
    by_streamflow = execute(Plan(one.program, {**one.parameters, "iterations": 1}, "workflow", world="slurm", seed=5))
    assert by_streamflow.errors == []
    assert by_streamflow.result["labels_digest"] == by_qloom.result["labels_digest"]
    assert len({node for nodes in on(by_streamflow, "clustering") for node in nodes}) == 3
    assert all(node.startswith("c") for nodes in on(by_streamflow, "clustering") for node in nodes)
    assert [len(nodes) for nodes in on(by_streamflow, "partition")] == [1]
    held = [event for event in by_streamflow.events if event["event"] == "granted" and "device" in event]
    assert [event["device"] for event in held] == ["qpu"]
    assert site.jobs() == []


@pytest.mark.slow
def test_an_interrupt_reaches_slurm_and_leaves_a_journal(site, tmp_path):
    words = [
        "clustering",
        "--strategy",
        "workflow",
        "--engine",
        "streamflow",
        "--world",
        "slurm",
        "--set",
        "blobs=200",
    ]
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-m", "qloom", "run", *words]
        process = subprocess.Popen(command, env=site.environment, stdout=log, stderr=log)
    until(lambda: site.jobs() or process.poll() is not None, "the first step is submitted")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, (tmp_path / "log").read_text()
    until(lambda: site.jobs() == [], "Slurm has let go of it")
    run = home.find_run("last")
    assert read_events(run)[-1]["state"] == "interrupted"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"strategy": "malleable"}, "cannot run malleable"),
        ({"world": "virtual"}, "cannot run in the virtual world"),
    ],
)
def test_what_streamflow_cannot_run_is_refused(said, why):
    with pytest.raises(InputError, match=why):
        execute(plan(**said))


def test_a_job_file_is_for_export(tmp_path):
    (tmp_path / "job.toml").write_text(ADDING)
    with pytest.raises(InputError, match="qloom export cwl"):
        execute(Plan(load_program(str(tmp_path / "job.toml")), strategy="workflow"))


def test_without_streamflow_the_command_that_brings_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("qloom.streamflow.environment.FOLDER", "no-such-folder")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("QLOOM_STREAMFLOW", raising=False)
    with pytest.raises(InputError, match=r"StreamFlow is not installed \(scripts/streamflow-environment"):
        execute(plan())
