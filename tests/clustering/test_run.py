"""`qloom run clustering` as a user sees it: what it prints, and the files it leaves."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qloom.clustering import program
from qloom.clustering.report import summary_of
from tests.clustering.fakejob import FakeJob, run


def qloom(tmp_path, *words):
    environment = os.environ | {"QLOOM_HOME": str(tmp_path / "home"), "COLUMNS": "80"}
    command = [sys.executable, "-m", "qloom", "run", "clustering", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def heights(tmp_path):
    random = np.random.default_rng(1)
    path = tmp_path / "heights.csv"
    groups = [random.normal(middle, 1.0, 100) for middle in (0, 9, 20, 40)]
    np.savetxt(path, np.concatenate(groups), header="height", comments="")
    return path


def test_one_column_is_clustered_summed_up_and_drawn(tmp_path, heights):
    done = qloom(tmp_path, "--set", f"data={heights}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "400 points in 1 dimension" in lines[0]
    assert any(line.startswith("clusters     4, of 100 points each") for line in lines)
    assert all(len(line) <= 80 for line in lines[:-1])  # the last is a path
    folder = Path(lines[-1].strip())
    assert sorted(path.name for path in folder.iterdir()) == ["clusters.png", "labels.csv", "summary.json"]
    assert png_size(folder / "clusters.png") == (1200, 900)


def test_json_still_has_everything(tmp_path, heights):
    done = qloom(tmp_path, "--set", f"data={heights}", "--set", "plot=", "--world", "virtual", "--json")
    result = json.loads(done.stdout)["results"][0]
    assert {"clusters", "iterations", "labels_digest", "sizes"} <= set(result)


def test_a_column_of_text_is_refused_with_a_way_out(tmp_path):
    path = tmp_path / "flowers.csv"
    path.write_text("length,width,kind\n1,2,iris\n3,4,rose\n5,7,iris\n")
    done = qloom(tmp_path, "--set", f"data={path}")
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "line 2: column kind holds 'iris', not a number" in said
    assert "label=kind" in said


def test_a_summary_of_many_clusters_is_short_and_names_what_contributed(tmp_path):
    random = np.random.default_rng(2)
    points = np.concatenate([random.normal(middle, 0.2, (40, 2)) for middle in random.uniform(-60, 60, (30, 2))])
    path = tmp_path / f"{'a-name-that-goes-on-and-on-' * 3}.npy"
    np.save(path, points)
    settings = {"k_min": 25, "k_max": 30, "linkage_k": 28, "methods": "kmeans,dbscan,single,ward,hdbscan"}
    result = run(program, FakeJob(output_dir=tmp_path), data=str(path), plot="", **settings)
    text = summary_of(result, tmp_path)
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines[:-1])
    assert len(lines) <= 30
    assert f"{len(result['sizes']) - 12} more clusters" in text
    for method in ("kmeans (k = ", "dbscan (eps = ", "single (k = 28)", "ward (k = ", "hdbscan (min_size = "):
        assert method in " ".join(text.split())
    assert text.endswith(str(tmp_path))


def test_a_summary_says_what_was_not_scored():
    result = run(program, blobs=800, iterations=2, score=False, weights="size")
    text = summary_of(result, None)
    assert "silhouette   not computed" in text
    assert "files" not in text
    sampled = summary_of(run(program, blobs=3000, iterations=1, exact_limit=1000, sample=1000), None)
    assert "of a sample of 1,000 points" in sampled


def png_size(path):
    return struct.unpack(">II", path.read_bytes()[16:24])
