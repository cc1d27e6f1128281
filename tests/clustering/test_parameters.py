"""Draws of parameters: seeded, spread out, independent of what came before."""

from __future__ import annotations

import numpy as np
import pytest

from qloom.clustering.data import blobs
from qloom.clustering.dbscan import dbscan
from qloom.clustering.parameters import Ranges, draw, eps_range
from qloom.clustering.toys import toy


def test_draws_stay_in_their_ranges_and_cover_them():
    ranges = Ranges(methods=("kmeans", "dbscan", "single"))
    drawn = [draw(ranges, (1.2, 4.5), 7, iteration) for iteration in range(7)]
    assert sorted(kmeans["k"] for kmeans, _, _ in drawn) == [4, 5, 6, 7, 8, 9, 10]
    radii = sorted(dbscan["eps"] for _, dbscan, _ in drawn)
    assert 1.2 <= radii[0] < 1.6 < 3.4 < radii[-1] <= 4.5
    assert {single["k"] for _, _, single in drawn} == {4}
    assert len({kmeans["seed"] for kmeans, _, _ in drawn}) == 7


def test_a_draw_depends_on_the_seed_and_the_iteration_alone():
    ranges = Ranges(linkage_k=0)
    assert draw(ranges, (1, 2), 3, 5) == draw(ranges, (1, 2), 3, 5)
    assert draw(ranges, (1, 2), 3, 5) != draw(ranges, (1, 2), 4, 5)


@pytest.mark.parametrize("name", ["blobs", "moons", "rings", "spirals"])
def test_the_derived_range_of_eps_holds_values_that_find_the_groups(name):
    data = toy(name)
    low, high = eps_range(data.points, 10)
    noise = [np.mean(dbscan(data.points, eps, 10) == -1) for eps in (low, high)]
    assert noise[0] < 0.1
    assert noise[1] < 0.005
    groups = [dbscan(data.points, eps, 10).max() + 1 for eps in np.geomspace(low, high, 5)]
    assert data.truth.max() + 1 in groups


def test_eps_scales_with_the_data_and_survives_equal_points():
    points = blobs(500).points
    low, high = eps_range(points, 10)
    assert np.allclose(eps_range(points * 1e-3, 10), (low * 1e-3, high * 1e-3))
    few = np.repeat(np.array([[0.0, 0], [1, 0], [5, 5]]), 50, axis=0)
    assert 0 < eps_range(few, 10)[0] <= eps_range(few, 10)[1]
    assert eps_range(np.array([[0.0], [1.0]]), 10)[0] > 0
