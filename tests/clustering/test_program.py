"""The whole loop, in a job without a world."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from qloom.clustering import program
from qloom.clustering.data import blobs
from qloom.clustering.toys import toy
from qloom.errors import InputError
from qloom.model import Sample
from tests.clustering.fakejob import FakeJob, run

PUBLISHED = {"weights": "size", "penalty": "published", "eps_min": 1.2, "eps_max": 4.5}


def test_the_published_loop_passes_its_threshold():
    for seed in range(5):
        result = run(program, FakeJob(seed), blobs=4000, **PUBLISHED)
        assert result["reached"]
        assert result["score"] > 0.8
        assert len(result["iterations"]) <= 10


def test_the_published_loop_on_the_80000_points_of_the_paper():
    result = run(program, FakeJob(1), blobs=80_000, threads=2, gap=True, **PUBLISHED)
    assert result["reached"]
    assert result["scoring"] == {"silhouette": "exact", "scored_points": 80_000}


def test_the_result_is_json_and_says_where_everything_came_from():
    result = run(program, blobs=800, iterations=3, threshold=1, gap=True)
    assert json.loads(json.dumps(result)) == result
    assert sum(result["sizes"]) == 800
    best = result["iterations"][result["iteration"]]
    assert result["score"] == best["score"] == max(record["score"] for record in result["iterations"])
    assert [cluster["label"] for cluster in result["clusters"]] == list(range(len(result["sizes"])))
    for cluster in result["clusters"]:
        for source in cluster["found_by"]:
            assert {key: source[key] for key in source if key != "cluster"} in best["clusterings"]
    assert {"ari", "nmi"} <= set(result)
    assert all(0 <= record["gap"] <= 1 for record in result["iterations"])


def test_the_same_seed_gives_the_same_result():
    first, second, other = (run(program, FakeJob(seed), blobs=800, iterations=3, threshold=1) for seed in (5, 5, 6))
    assert first == second
    assert first["iterations"][0]["clusterings"] != other["iterations"][0]["clusterings"]


def test_threads_and_the_order_of_draws_do_not_change_the_result():
    one = run(program, blobs=3000, iterations=2, threshold=1)
    many = run(program, blobs=3000, iterations=2, threshold=1, threads=3)
    assert one == many


def test_the_next_clusterings_are_spare_work_and_are_asked_for_again_as_they_were():
    job = FakeJob()
    run(program, job, blobs=800, iterations=4, threshold=1)
    assert job.speculated
    assert set(job.speculated) <= set(job.asked)


def test_what_does_not_change_is_computed_once():
    job = FakeJob()
    run(program, job, blobs=800, iterations=8, threshold=1)
    assert job.ran.count("hierarchy") == 1
    assert job.ran.count("find_eps_range") == 1
    clusterings = [content for content, name in zip(job.asked, job.ran, strict=True) if name == "clustering"]
    assert len(clusterings) == len(set(clusterings))


def test_a_device_that_answers_nonsense_is_repaired_and_the_repair_is_told():
    everything = FakeJob(answer=lambda model: Sample(dict.fromkeys(model.variables, 1), 0.0))
    result = run(program, everything, blobs=800, iterations=1)
    assert result["iterations"][0]["repair"]["dropped"]
    assert sum(result["sizes"]) == 800
    nothing = FakeJob(answer=lambda model: Sample(dict.fromkeys(model.variables, 0), 0.0))
    result = run(program, nothing, blobs=800, iterations=1)
    assert result["iterations"][0]["repair"]["added"]


def test_the_tight_penalty_brings_the_annealer_nearer_to_the_optimum():
    missed = dict.fromkeys(("tight", "published"), 0.0)
    for penalty in missed:
        for seed in (1, 2, 3):
            result = run(program, FakeJob(seed), blobs=4000, iterations=2, threshold=1, gap=True, penalty=penalty)
            missed[penalty] += sum(record["gap"] for record in result["iterations"])
    assert missed["tight"] < 0.01 < missed["published"]


def test_a_driver_starts_light():
    heavy = "numba", "scipy", "sklearn", "matplotlib", "dimod", "quitefastmst"
    code = f"import sys, qloom.clustering, qloom.cli.clustering; print([n for n in {heavy!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": os.pathsep.join(sys.path)},
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr(sys.modules["qloom.clustering.parameters"], "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"qloom\[clustering\]"):
        run(program, blobs=100)


def test_files_for_the_user(tmp_path):
    path = tmp_path / "points.csv"
    data = toy("moons")
    np.savetxt(path, np.column_stack([data.points, data.truth]), delimiter=",", header="x,y,kind", comments="")
    out = tmp_path / "out"
    result = run(program, FakeJob(output_dir=out), data=str(path), label="kind", iterations=1, plot="svg")
    assert result["files"] == ["labels.csv", "summary.json", "clusters.svg"]
    labels = np.loadtxt(out / "labels.csv", skiprows=1, dtype=int)
    assert np.bincount(labels).tolist() == result["sizes"]
    assert json.loads((out / "summary.json").read_text()) == result
    assert "<svg" in (out / "clusters.svg").read_text()
    assert (tmp_path / "points.csv").exists()


def test_beyond_a_size_a_sample_is_scored_and_the_result_says_so():
    exact = run(program, blobs=3000, iterations=1)
    sampled = run(program, blobs=3000, iterations=1, exact_limit=1000, sample=1000)
    assert sampled["scoring"] == {"silhouette": "sample", "scored_points": 1000}
    assert sampled["score"] == pytest.approx(exact["score"], abs=0.05)


def test_without_a_score_all_iterations_run_and_the_heaviest_choice_wins():
    job = FakeJob()
    result = run(program, job, blobs=800, iterations=3, score=False, weights="size")
    assert result["score"] is None
    assert result["scoring"] == "none"
    assert len(result["iterations"]) == 3


@pytest.mark.parametrize("methods", ["kmeans", "ward,hdbscan", "kmeans,dbscan,single,ward,hdbscan"])
def test_any_methods_can_be_combined(methods):
    result = run(program, blobs=800, iterations=2, methods=methods)
    assert result["score"] > 0.4


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_data_of_any_scale_works(tmp_path, scale):
    np.save(tmp_path / "points.npy", blobs(800).points * scale)
    result = run(program, data=str(tmp_path / "points.npy"), iterations=4, threshold=1)
    assert result["score"] > 0.75


def test_a_single_cluster_everywhere_is_said(tmp_path):
    np.save(tmp_path / "points.npy", np.random.default_rng(0).uniform(size=(400, 2)))
    with pytest.raises(InputError, match="no iteration found two clusters"):
        run(program, data=str(tmp_path / "points.npy"), methods="dbscan", eps_min=3, eps_max=4)


BAD = [
    ({}, "one of data and blobs is needed"),
    ({"blobs": 100, "data": "x.csv"}, "one of data and blobs is needed"),
    ({"blobs": 1}, "at least 2 points"),
    ({"blobs": 8}, "k = 10 clusters cannot be made of 8 points"),
    ({"blobs": 100, "k_min": 1}, "start at 2 or more"),
    ({"blobs": 100, "k_min": 6, "k_max": 5}, "must rise"),
    ({"blobs": 100, "linkage_k": 1}, "linkage_k must be 0"),
    ({"blobs": 100, "methods": "kmeans,guess"}, "unknown clustering method 'guess'"),
    ({"blobs": 100, "methods": "kmeans,kmeans"}, "can be named once"),
    ({"blobs": 100, "methods": ""}, "at least one is needed"),
    ({"blobs": 100, "min_pts": 0}, "min_pts must be at least 1"),
    ({"blobs": 100, "eps_min": 1.0}, "eps_min and eps_max belong together"),
    ({"blobs": 100, "eps_min": 2.0, "eps_max": 1.0}, "eps must be positive and rise"),
    ({"blobs": 100, "weights": "colour"}, "unknown weights 'colour'"),
    ({"blobs": 100, "penalty": "none"}, "unknown penalty 'none'"),
    ({"blobs": 100, "iterations": 0}, "iterations and shots must be at least 1"),
    ({"blobs": 100, "threads": 0}, "threads must be at least 1"),
    ({"blobs": 100, "precision": "half"}, "precision must be single or double"),
    ({"blobs": 100, "plot": "gif"}, "plot must be png, svg or empty"),
]


@pytest.mark.parametrize(("given", "said"), BAD)
def test_bad_settings_are_one_clear_line(given, said):
    with pytest.raises(InputError) as refused:
        run(program, **given)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
