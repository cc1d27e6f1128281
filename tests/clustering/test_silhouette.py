"""Silhouettes equal scikit-learn's, however strange the clusters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics import silhouette_samples as sklearn_samples

from qloom.clustering.overlap import adjusted_rand, mutual_information
from qloom.clustering.silhouette import silhouette_samples
from qloom.clustering.toys import TOYS, toy
from qloom.errors import InputError

TOLERANCE = {"double": 1e-6, "single": 1e-4}


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("dimensions", [1, 2, 3, 12])
def test_equal_to_scikit_learn(precision, dimensions):
    points, labels = make_blobs(2500, centers=6, n_features=dimensions, random_state=1)
    points += 1e4  # far from the origin: single precision must not suffer
    ours = silhouette_samples(points, [labels], precision=precision)[0]
    assert np.abs(ours - sklearn_samples(points, labels)).max() < TOLERANCE[precision]


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("name", [name for name in TOYS if name != "uniform"])
def test_equal_on_the_toy_sets(precision, name):
    data = toy(name)
    ours = silhouette_samples(data.points, [data.truth], precision=precision)[0]
    assert np.abs(ours - sklearn_samples(data.points, data.truth)).max() < TOLERANCE[precision]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(0, 4)), min_size=3, max_size=40),
    st.sampled_from(sorted(TOLERANCE)),
)
def test_equal_with_singletons_and_duplicates(rows, precision):
    table = np.array(rows)
    labels = np.unique(table[:, 2], return_inverse=True)[1]
    points = table[:, :2].astype(float)
    if not 2 <= labels.max() + 1 < len(points):
        return
    ours = silhouette_samples(points, [labels], precision=precision)[0]
    assert np.abs(ours - sklearn_samples(points, labels)).max() < TOLERANCE[precision]


def test_several_clusterings_in_one_pass_are_each_as_if_alone():
    points, labels = make_blobs(700, centers=4, random_state=2)
    random = np.random.default_rng(0)
    others = [random.integers(0, 9, 700), labels // 2, labels]
    together = silhouette_samples(points, others, precision="double")
    for labelling, values in zip(others, together, strict=True):
        assert np.abs(values - sklearn_samples(points, labelling)).max() < 1e-9


def test_noise_is_no_cluster():
    points, labels = make_blobs(600, centers=4, random_state=3)
    labels[::7] = -1
    kept = labels >= 0
    values = silhouette_samples(points, [labels], precision="double")[0]
    assert np.abs(values[kept] - sklearn_samples(points[kept], labels[kept])).max() < 1e-9
    assert (values[~kept] == 0).all()


def test_one_cluster_has_no_silhouette():
    points = np.arange(10.0).reshape(5, 2)
    assert (silhouette_samples(points, [np.zeros(5, int)]) == 0).all()
    assert (silhouette_samples(points, [np.full(5, -1)]) == 0).all()


def test_threads_and_samples_change_nothing():
    points, labels = make_blobs(3000, centers=5, random_state=4)
    alone = silhouette_samples(points, [labels])
    assert (silhouette_samples(points, [labels], threads=3) == alone).all()
    rows = np.array([5, 17, 2999, 0])
    assert (silhouette_samples(points, [labels], rows=rows) == alone[:, rows]).all()


def test_bad_calls():
    points = np.zeros((4, 2))
    with pytest.raises(InputError, match="single or double"):
        silhouette_samples(points, [np.zeros(4, int)], precision="half")
    with pytest.raises(InputError, match="4 points, but labels for 3"):
        silhouette_samples(points, [np.zeros(3, int)])
    with pytest.raises(InputError, match="no clusterings"):
        silhouette_samples(points, [])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 4)), min_size=2, max_size=50))
def test_comparison_with_truth(pairs):
    a, b = np.array(pairs).T
    assert adjusted_rand(a, b) == pytest.approx(adjusted_rand_score(a, b), abs=1e-9)
    assert mutual_information(a, b) == pytest.approx(normalized_mutual_info_score(a, b), abs=1e-9)
