"""The workflow strategy by StreamFlow: the same results and the same journal as by the built-in engine."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

import qloom
from qloom.broker.client.sync import SyncBrokerClient
from qloom.errors import InputError
from qloom.export.crate import write_crate
from qloom.journal import home
from qloom.journal.file import read_events
from qloom.journal.history import read_history
from qloom.programs.load import load_program
from qloom.runs.runner import Plan
from qloom.site import Site, Slurm
from qloom.streamflow.engine import execute
from qloom.streamflow.process import reason_in
from qloom.views.accounting import account
from tests.export.crates import require_sound
from tests.journals import as_lines
from tests.streamflow.workflows import CANDIDATE, DEADLINE_S, LOOPING, until

PARAMETERS = {"blobs": 200, "iterations": 1, "plot": "", "speculate": False}
OF_THE_WORLD = ("worker_started", "reaped", "program_computed")


def plan(program="clustering", **said):
    parameters = dict(PARAMETERS) if program == "clustering" else {}
    return Plan(load_program(program), parameters, **{"strategy": "workflow", "seed": 5, **said})


def works(outcome):
    return {event["work"] for event in as_lines(outcome.events) if event["event"] in ("task_ended", "quantum_ended")}


def on(outcome, name):
    """The nodes that tasks of a name ran on."""
    return [
        event["nodes"]
        for event in as_lines(outcome.events)
        if event["event"] == "task_started" and event["name"] == name
    ]


def files(outcome):
    folder = outcome.directory / "output" / "j1"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_job_file_has_the_same_result_files_and_journal_as_by_the_built_in_engine(engine, tmp_path):
    file = engine.jobfile(LOOPING)
    by_qloom = qloom.run(file, strategy="workflow", seed=5)
    by_streamflow = execute(plan(file))
    assert by_streamflow.errors == []
    assert by_streamflow.results == by_qloom.results
    assert files(by_streamflow) == files(by_qloom)
    assert works(by_qloom) == works(by_streamflow)
    kinds = [
        {event["event"] for event in as_lines(run.events)} - set(OF_THE_WORLD) for run in (by_qloom, by_streamflow)
    ]
    assert kinds[0] == kinds[1]
    times = [event["at_us"] for event in as_lines(by_streamflow.events)]
    assert times == sorted(times)
    figures = account(read_history(by_streamflow.events))
    assert figures.node_s_held > figures.node_s_busy > 0
    assert figures.qpu_s_held > figures.qpu_s_busy > 0
    assert by_streamflow.events[0].as_dict()["engine"] == "streamflow"
    crate = require_sound(write_crate(by_streamflow.run, tmp_path / "crate"))
    assert "streamflow-j1.zip" in crate
    again = qloom.run(file, strategy="workflow", seed=5, world="virtual", profile=by_streamflow.run)
    assert again.results == by_qloom.results


@pytest.mark.slow
def test_on_slurm_each_step_of_clustering_goes_where_it_belongs(site, monkeypatch):
    monkeypatch.delenv("QLOOM_BROKER")  # the QPU is a partition here
    by_qloom = qloom.run("clustering", parameters=dict(PARAMETERS), strategy="workflow", seed=5, site=Site(nodes=1))
    by_streamflow = execute(plan(world="slurm"))
    assert by_streamflow.errors == []
    assert by_streamflow.results == by_qloom.results
    assert works(by_qloom) <= works(by_streamflow)
    assert len({node for nodes in on(by_streamflow, "clustering") for node in nodes}) == 3
    assert all(node.startswith("c") for nodes in on(by_streamflow, "clustering") for node in nodes)
    assert [len(nodes) for nodes in on(by_streamflow, "partition")] == [1]
    held = [event for event in as_lines(by_streamflow.events) if event["event"] == "granted" and "device" in event]
    assert [event["device"] for event in held] == ["qpu"]
    assert site.jobs() == []


@pytest.mark.slow
def test_a_payload_is_answered_by_the_broker_or_by_its_stand_in(site):
    behind = plan(site.jobfile(CANDIDATE), world="slurm", site=Site(broker=site.environment["QLOOM_BROKER"]))
    by_device = execute(behind)
    assert by_device.errors == []
    assert b'"energy": -1.0' in files(by_device)["answer.json"]
    with SyncBrokerClient(retry_s=5.0) as broker:
        broker.drain("qpu")
        by_stand_in = execute(behind)
        broker.drain("qpu", False)
    assert by_stand_in.errors == []
    assert b'"node": "c' in files(by_stand_in)["answer.json"]
    assert "qpu is drained" in (by_stand_in.directory / "streamflow" / "j1" / "streamflow.log").read_text()
    assert works(by_stand_in) == works(by_device)


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
    assert process.wait(DEADLINE_S) == 130, (tmp_path / "log").read_text()
    until(lambda: site.jobs() == [], "Slurm has let go of it")
    run = home.find_run("last")
    assert read_events(run)[-1].as_dict()["state"] == "interrupted"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"strategy": "malleable"}, "cannot run malleable"),
        ({"world": "virtual"}, "cannot run in the virtual world"),
        (
            {"world": "slurm", "site": Site(slurm=Slurm(most_node_hours=1.0))},
            "slurm.most_node_hours cannot be passed on",
        ),
    ],
)
def test_what_streamflow_cannot_run_is_refused(said, why):
    with pytest.raises(InputError, match=why):
        execute(plan(**said))


def test_a_program_without_static_shape_is_refused():
    with pytest.raises(InputError, match="phases has no static shape"):
        execute(plan("phases"))


def test_without_streamflow_the_command_that_brings_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("qloom.streamflow.process.FOLDER", "no-such-folder")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("QLOOM_STREAMFLOW", raising=False)
    with pytest.raises(InputError, match=r"StreamFlow is not installed \(scripts/streamflow-environment"):
        execute(plan())


AT = "2026-01-01 12:00:00.000"


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (f"{AT} INFO     x\n{AT} ERROR    no broker answers\n{AT} ERROR    more", "no broker answers"),
        (f"{AT} ERROR    FAILED Job /a/0 with error:\n\tno space\n", "FAILED Job /a/0 with error: no space"),
        (f"{AT} INFO     x\nstreamflow: error: no such option\n", "streamflow: error: no such option"),
        ("", "it said nothing"),
    ],
)
def test_the_reason_is_found_in_streamflows_log(tmp_path, log, why):
    (tmp_path / "log").write_text(log)
    assert reason_in(tmp_path / "log") == why
