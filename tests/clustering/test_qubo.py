"""The overlap graph, its QUBO, the exact optimum, and answers that need repair."""

from __future__ import annotations

import itertools
import sys

import dimod
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qloom.clustering.answer import compact, cover, gap, optimum, optimum_by_search, repair
from qloom.clustering.overlap import cells_of
from qloom.clustering.qubo import PENALTIES, graph, model, partial_labels, terms
from qloom.errors import InputError
from qloom.payloads.adapt import qubo

NAMES = ["kmeans", "dbscan", "single"]


@st.composite
def clusterings(draw):
    count = draw(st.integers(2, 14))
    label = st.lists(st.integers(-1, 3), min_size=count, max_size=count)
    return [dense(np.array(draw(label))) for _ in range(3)]


def dense(labels):
    kept = labels >= 0
    labels[kept] = np.unique(labels[kept], return_inverse=True)[1]
    return labels


@given(clusterings())
def test_clusters_overlap_exactly_if_they_share_a_point(labelings):
    overlaps = graph(cells_of(labelings), NAMES)
    members = []
    for cluster in overlaps.clusters:
        sets = {
            frozenset(np.flatnonzero(labelings[NAMES.index(method)] == int(label)).tolist())
            for method, label in (name.split(":") for name in cluster.found_by)
        }
        assert len(sets) == 1
        members.append(sets.pop())
        assert cluster.size == len(members[-1])
    assert len(set(members)) == len(members)
    pairs = itertools.combinations(range(len(members)), 2)
    assert overlaps.edges == [(a, b) for a, b in pairs if members[a] & members[b]]
    everything = {
        frozenset(np.flatnonzero(labels == value).tolist())
        for labels in labelings
        for value in set(labels.tolist()) - {-1}
    }
    assert set(members) == everything - {frozenset(range(len(labelings[0])))}


@settings(max_examples=40, deadline=None)
@given(clusterings(), st.booleans(), st.sampled_from(PENALTIES), st.integers(0, 1000))
def test_every_minimum_of_the_qubo_is_free_of_overlaps_and_optimal(labelings, by_silhouette, penalty, seed):
    cells = cells_of(labelings)
    sums = None
    if by_silhouette:
        random = np.random.default_rng(seed)
        sums = [random.normal(size=count) for count in cells.cluster_counts]
    overlaps = graph(cells, NAMES, sums, penalty)
    if not 0 < len(overlaps.clusters) <= 10:
        return
    solved = dimod.ExactSolver().sample(model(overlaps))
    best = optimum(overlaps)
    assert qubo(terms(overlaps)).body == qubo(model(overlaps)).body
    assert overlaps.energy(best) == pytest.approx(solved.first.energy, abs=1e-9)
    for sample, energy in solved.data(["sample", "energy"]):
        if energy < solved.first.energy + 1e-9:
            chosen = [i for i, cluster in enumerate(overlaps.clusters) if sample[cluster.name]]
            assert not any(a in chosen and b in chosen for a, b in overlaps.edges)
            assert not set(repair(overlaps, sample).dropped)
            assert gap(overlaps, chosen, best) == 0


@settings(deadline=None)
@given(clusterings(), st.booleans(), st.integers(0, 2**32 - 1))
def test_the_search_finds_an_optimum(labelings, by_silhouette, seed):
    cells = cells_of(labelings)
    random = np.random.default_rng(seed)
    sums = [random.normal(size=count) for count in cells.cluster_counts] if by_silhouette else None
    overlaps = graph(cells, NAMES, sums)
    found = optimum_by_search(overlaps, cells.sizes.tolist())
    taken = [cell for i in found for cell in overlaps.clusters[i].cells]
    assert len(set(taken)) == len(taken)
    assert overlaps.energy(found) == pytest.approx(overlaps.energy(optimum(overlaps)), abs=2e-6)  # the solver's gap


def test_a_search_that_takes_too_long_is_left_to_the_solver(monkeypatch):
    cells = cells_of([np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 2, 2])])
    overlaps = graph(cells, ["halves", "thirds"])
    monkeypatch.setattr(sys.modules["qloom.clustering.answer"], "SEARCH_LIMIT", 1)
    assert optimum_by_search(overlaps, cells.sizes.tolist()) == optimum(overlaps)


@given(clusterings(), st.integers(0, 2**32 - 1))
def test_any_answer_becomes_a_partition(labelings, seed):
    cells = cells_of(labelings)
    overlaps = graph(cells, NAMES)
    random = np.random.default_rng(seed)
    values = {cluster.name: int(random.integers(2)) for cluster in overlaps.clusters}
    choice = repair(overlaps, values)
    taken = [cell for i in choice.chosen for cell in overlaps.clusters[i].cells]
    assert len(set(taken)) == len(taken)
    wanted = {i for i, cluster in enumerate(overlaps.clusters) if values[cluster.name]}
    assert wanted - set(choice.dropped) == set(choice.chosen) - set(choice.added)
    for i, cluster in enumerate(overlaps.clusters):
        assert i in choice.chosen or set(cluster.cells) & set(taken)
    points = random.normal(size=(len(labelings[0]), 2))
    labels = cover(points, partial_labels(cells.of_point, [overlaps.clusters[i] for i in choice.chosen]))
    assert (labels >= 0).all() or not choice.chosen


def test_silhouettes_tell_covers_of_the_same_size_apart():
    halves, thirds = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 2, 2])
    cells = cells_of([halves, thirds])
    by_size = graph(cells, ["halves", "thirds"])
    assert by_size.weights == (1.0, 1.0, 0.666667, 0.666667, 0.666667)
    by_silhouette = graph(cells, ["halves", "thirds"], [np.array([2.0, 2.0]), np.array([1.8, -0.5, 1.8])])
    assert by_silhouette.weights == (1.0, 1.0, 0.9, 0.9)
    assert [by_silhouette.clusters[i].name for i in optimum(by_silhouette)] == ["halves:0", "halves:1"]


def test_points_without_a_cluster_go_to_the_nearest_one():
    points = np.array([[0.0], [1], [4], [5], [2]])
    assert cover(points, np.array([0, 0, 1, 1, -1])).tolist() == [0, 0, 1, 1, 0]
    nobody = np.full(5, -1)
    assert cover(points, nobody).tolist() == nobody.tolist()


def test_labels_travel_in_the_smallest_type():
    assert compact(np.array([-1, 127])).dtype == np.int8
    assert compact(np.array([0, 128])).dtype == np.int16
    assert compact(np.array([0, 40_000])).dtype == np.int32


def test_many_clusters_make_no_large_tables():
    random = np.random.default_rng(0)
    labelings = [random.integers(0, 3000, 20_000) for _ in range(3)]
    cells = cells_of(labelings)
    assert cells.sizes.sum() == 20_000
    for labels, row in zip(labelings, cells.labels, strict=True):
        assert (row[cells.of_point] == labels).all()


def test_bad_labels():
    with pytest.raises(InputError, match="below -1"):
        cells_of([np.array([0, -2])])
    with pytest.raises(InputError, match="clustering 1 has labels for"):
        cells_of([np.zeros(3, int), np.zeros(4, int)])
    with pytest.raises(InputError, match="worth choosing"):
        model(graph(cells_of([np.zeros(3, int)]), ["all"]))
