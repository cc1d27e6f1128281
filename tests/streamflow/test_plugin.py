"""The plugin's own tests, in the environment that it lives in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.streamflow.workflows import ADDING, ASKING

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def test_the_tests_of_the_plugin_pass(streamflow):
    command = [streamflow.parent / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=ROOT / "plugins" / "streamflow", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_cwltool_runs_a_loop_to_its_condition(engine):
    workflow = engine.export(ADDING)
    for options in (["--validate"], ["--outdir", "results"]):
        command = [engine.bin / "cwltool", "--enable-ext", *options, "adding.cwl", "inputs.yml"]
        done = subprocess.run(
            command, cwd=workflow, env=engine.environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
    assert (workflow / "results" / "all.txt").read_text().split() == ["1", "2", "3"]


def test_streamflow_emulates_the_device_on_this_machine(engine):
    workflow = engine.export(ASKING)
    assert engine.run(workflow) == 0, (workflow / "log").read_text()
    assert '"energy": -1.0' in (workflow / "results" / "answer.json").read_text()


def test_what_is_written_for_clustering_is_valid(engine, tmp_path):
    from qloom.export import Places, flow_of, write_cwl

    flow = flow_of("clustering", {"blobs": 60, "iterations": 2}, or_classical=True)
    write_cwl(tmp_path / "c", flow, Places("slurm", "broker"))
    checks = (
        ["cwltool", "--enable-ext", "--validate", "clustering.cwl"],
        ["streamflow", "run", "--validate", "streamflow.yml"],
    )
    for name, *options in checks:
        done = subprocess.run(
            [engine.bin / name, *options], cwd=tmp_path / "c", capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
