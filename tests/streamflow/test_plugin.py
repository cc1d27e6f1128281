"""What is exported, by the engines themselves on this machine: cwltool, and StreamFlow with the plugin."""

from __future__ import annotations

import json
import subprocess

import pytest

from qloom.export import Places, flow_of, steps, write_cwl
from qloom.export.solve import run_quantum_step
from tests.streamflow.workflows import ADDING

pytestmark = pytest.mark.slow


def call(engine, folder, *words: str) -> subprocess.CompletedProcess[str]:
    command = [engine.bin / words[0], *words[1:]]
    return subprocess.run(command, cwd=folder, env=engine.environment, capture_output=True, text=True, timeout=300)


def test_cwltool_runs_a_loop_to_its_condition(engine):
    workflow = engine.export(ADDING)
    done = call(engine, workflow, "cwltool", "--enable-ext", "--outdir", "results", "adding.cwl", "inputs.yml")
    assert done.returncode == 0, done.stderr
    assert (workflow / "results" / "all.txt").read_text().split() == ["1", "2"]


def test_cwltool_runs_clustering_and_gives_back_the_best_of_its_iterations(engine, tmp_path):
    flow = flow_of("clustering", {"blobs": 60, "iterations": 2, "threshold": 0.99, "methods": "kmeans"}, seed=3)
    folder = tmp_path / "c"
    write_cwl(folder, flow, Places())
    for name, content in flow.files.items():
        (tmp_path / name).write_bytes(content)
    steps.prepare(tmp_path)
    for iteration in (1, 2):
        steps.cluster(tmp_path, "kmeans", iteration)
        steps.qubo(tmp_path, iteration)
        run_quantum_step(tmp_path / "qubo.json", tmp_path / "answer.json", 100, None, [])
        steps.score(tmp_path, iteration)
    for options in (["--validate"], ["--outdir", "results"]):
        done = call(engine, folder, "cwltool", "--enable-ext", *options, "clustering.cwl", "inputs.yml")
        assert done.returncode == 0, done.stderr
    assert len(json.loads((folder / "results" / "summary.json").read_text())["iterations"]) == 2
    for name in ("labels.csv", "summary.json"):
        assert (folder / "results" / name).read_bytes() == (tmp_path / name).read_bytes()


def test_streamflow_takes_what_is_written_and_refuses_an_unknown_location(engine, tmp_path):
    flow = flow_of("clustering", {"blobs": 60, "iterations": 2}, or_classical=True)
    write_cwl(tmp_path / "c", flow, Places("slurm", "broker"))
    done = call(engine, tmp_path / "c", "streamflow", "run", "--validate", "streamflow.yml")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "c" / "streamflow.yml"
    file.write_text(file.read_text().replace("deployment: here", "deployment: moon"))
    done = call(engine, tmp_path / "c", "streamflow", "run", "streamflow.yml")
    assert done.returncode == 1
    (told,) = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert "step /loop/judge is put on 'moon', and there is no such deployment: known are here" in told
