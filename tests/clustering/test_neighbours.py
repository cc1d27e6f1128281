"""Neighbours are those of scipy, whichever library finds them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree

from qloom.clustering.kdtrees import kth_distances, nearest


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 12])
@pytest.mark.parametrize("k", [1, 2, 10])
def test_distances_are_the_same_to_the_last_bit(dimensions, k):
    points = np.random.default_rng(dimensions).normal(size=(500, dimensions)) * 1e-3 + 7
    theirs = cKDTree(points).query(points[::3], k=[k])[0][:, 0]
    assert (kth_distances(points, points[::3], k) == theirs).all()


def test_as_many_neighbours_as_points():
    points = np.array([[0.0], [1.0], [3.0]])
    assert kth_distances(points, points, 3).tolist() == [3.0, 2.0, 3.0]


@pytest.mark.parametrize("dimensions", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 2, 3, 400])
def test_the_nearest_point(dimensions, count):
    random = np.random.default_rng(count)
    points, queries = random.normal(size=(count, dimensions)), random.normal(size=(50, dimensions))
    assert (nearest(points, queries) == cKDTree(points).query(queries)[1]).all()


def test_ties_are_broken_as_ever():
    random = np.random.default_rng(0)
    points, queries = random.integers(0, 9, (60, 2)).astype(float), random.integers(0, 9, (60, 2)).astype(float)
    assert (nearest(points, queries) == cKDTree(points).query(queries)[1]).all()
