"""Each clustering method finds what scikit-learn finds."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from qloom.clustering import tasks
from qloom.clustering.dbscan import dbscan
from qloom.clustering.hdbscan import hdbscan
from qloom.clustering.kmeans import kmeans
from qloom.clustering.linkage import cut, tree
from qloom.clustering.toys import TOYS, toy
from qloom.errors import InputError


def groups(dimensions, count=600):
    return make_blobs(count, centers=5, n_features=dimensions, random_state=dimensions)[0]


def same(a, b):
    return adjusted_rand_score(a, b) == 1.0


@pytest.mark.parametrize("dimensions", [1, 2, 3, 5])
@pytest.mark.parametrize("eps", [0.05, 0.3, 1.0, 2.0, 30.0])
def test_dbscan(dimensions, eps):
    points = groups(dimensions)
    theirs = sklearn.cluster.DBSCAN(eps=eps, min_samples=10).fit(points)
    ours = dbscan(points, eps, 10)
    assert ((ours == -1) == (theirs.labels_ == -1)).all()
    core = theirs.core_sample_indices_
    assert same(ours[core], theirs.labels_[core])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=2, max_size=60),
    st.sampled_from([0.5, 1.0, 1.5, 2.0, 1e-6]),
    st.integers(1, 5),
)
def test_dbscan_where_distances_tie_with_eps(rows, eps, min_pts):
    points = np.array(rows, float)
    theirs = sklearn.cluster.DBSCAN(eps=eps, min_samples=min_pts).fit(points)
    ours = dbscan(points, eps, min_pts)
    assert ((ours == -1) == (theirs.labels_ == -1)).all()
    core = theirs.core_sample_indices_
    assert same(ours[core], theirs.labels_[core])


@pytest.mark.parametrize("dimensions", [1, 2, 4])
@pytest.mark.parametrize(
    "given",
    [
        {"method": "kmeans", "k": 4, "seed": 1},
        {"method": "dbscan", "eps": 1.0, "min_pts": 5},
        {"method": "hdbscan", "min_size": 10, "min_pts": 5},
        {"method": "single", "k": 4},
        {"method": "ward", "k": 4},
    ],
    ids=lambda given: given["method"],
)
def test_shared_points_are_read_only_and_stay_as_they_are(tmp_path, dimensions, given):
    points = groups(dimensions)
    np.save(tmp_path / "points.npy", points)
    shared = np.load(tmp_path / "points.npy", mmap_mode="r")
    joins = None
    if given["method"] in ("single", "ward"):
        np.save(tmp_path / "joins.npy", tasks.hierarchy.function(shared, given["method"]))
        joins = np.load(tmp_path / "joins.npy", mmap_mode="r")
    labels = tasks.clustering.function(shared, given, joins)
    assert (labels == tasks.clustering.function(points.copy(), given)).all()
    np.save(tmp_path / "labels.npy", labels)
    labels = np.load(tmp_path / "labels.npy", mmap_mode="r")
    assert len(tasks.cluster_silhouettes.function(shared, None, "single", 1, labels)) == 1
    assert len(tasks.partition.function(shared, labels, None, "single", 1, True)[0]) == len(points)
    assert tasks.find_eps_range.function(shared, 5) == tasks.find_eps_range.function(points, 5)
    assert (shared == points).all()


def test_dbscan_gives_border_points_to_the_nearest_core_point():
    line = np.array([[0.0], [0.1], [0.2], [1.1], [2.3], [2.4], [2.5]])
    labels = dbscan(line, 1.3, 4)
    assert labels[3] == labels[0] or labels[3] == labels[6]
    assert dbscan(np.array([[0.0], [0.1], [0.2], [1.1], [2.2], [2.3], [2.4]]), 1.0, 3).tolist() == [0] * 4 + [1] * 3


def test_dbscan_on_a_scale_that_no_grid_of_whole_cells_holds():
    points = np.concatenate([groups(2) * 1e-9, groups(2) * 1e-9 + 1e3])
    labels = dbscan(points, 2e-9, 10)
    assert same(labels[:600], labels[600:])


@pytest.mark.parametrize("dimensions", [1, 2, 4])
@pytest.mark.parametrize("linkage", ["single", "ward"])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_hierarchical(dimensions, linkage, k):
    points = groups(dimensions)
    theirs = sklearn.cluster.AgglomerativeClustering(k, linkage=linkage).fit_predict(points)
    assert same(cut(tree(points, linkage), k), theirs)


@pytest.mark.parametrize("linkage", ["single", "ward"])
def test_equal_points_stay_together(linkage):
    points = np.repeat(np.array([[0.0, 0], [1, 0], [5, 5]]), 20, axis=0)
    labels = cut(tree(points, linkage), 3)
    assert labels.tolist() == [0] * 20 + [1] * 20 + [2] * 20


@pytest.mark.parametrize("dimensions", [1, 2, 5])
@pytest.mark.parametrize("k", [1, 4, 9])
def test_kmeans_is_as_tight_as_scikit_learns(dimensions, k):
    points = groups(dimensions)
    labels = kmeans(points, k, seed=1, starts=10)
    theirs = sklearn.cluster.KMeans(k, n_init=10, random_state=0).fit(points)
    ours = sum(((points[labels == c] - points[labels == c].mean(axis=0)) ** 2).sum() for c in range(k))
    assert sorted(set(labels.tolist())) == list(range(k))
    assert ours <= theirs.inertia_ * 1.02


def test_kmeans_is_the_same_for_the_same_seed_and_survives_equal_points():
    points = groups(2)
    assert (kmeans(points, 5, seed=3) == kmeans(points, 5, seed=3)).all()
    few = np.repeat(np.array([[0.0, 0], [1, 0], [5, 5]]), 20, axis=0)
    assert len(set(kmeans(few, 3, seed=0).tolist())) == 3
    kmeans(few, 5, seed=0)


@pytest.mark.parametrize("name", ["blobs", "unbalanced", "moons", "rings", "spirals", "five-dimensions", "sheared"])
@pytest.mark.parametrize("min_size", [10, 50])
def test_hdbscan(name, min_size):
    points = toy(name).points
    theirs = sklearn.cluster.HDBSCAN(min_cluster_size=min_size, min_samples=10, copy=True).fit_predict(points)
    ours = hdbscan(points, min_size, 10)
    assert ours.max() == theirs.max()
    assert adjusted_rand_score(ours, theirs) > 0.99


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: kmeans(p, 7, seed=0), "k = 7 clusters cannot be made of 6 points"),
        (lambda p: kmeans(p, 0, seed=0), "k = 0"),
        (lambda p: cut(tree(p), 7), "k = 7 clusters cannot be made of 6 points"),
        (lambda p: tree(p, "median"), "unknown linkage 'median'"),
        (lambda p: dbscan(p, 0.0, 3), "eps must be a positive number"),
        (lambda p: dbscan(p, float("nan"), 3), "eps must be a positive number"),
        (lambda p: dbscan(p, 1.0, 0), "min_pts must be at least 1"),
        (lambda p: hdbscan(p, 1, 3), "min_size must be at least 2"),
        (lambda p: hdbscan(p, 3, 6), "min_pts must be from 1 to 5"),
    ],
)
def test_bad_parameters(call, said):
    with pytest.raises(InputError, match=said):
        call(np.arange(12.0).reshape(6, 2))


def test_toys_are_seeded():
    for name in TOYS:
        assert (toy(name, 1).points == toy(name, 1).points).all()
    assert (toy("moons", 1).points != toy("moons", 2).points).any()
    with pytest.raises(InputError, match="unknown toy set"):
        toy("squares")
