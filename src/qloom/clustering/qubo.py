"""Choosing clusters that do not overlap: a maximum-weight independent set, written as a QUBO.

    minimise  - sum_i w_i x_i  +  sum_(i, j overlap) p_ij x_i x_j

Weights lie in 0..1. An overlap's penalty is large enough if it exceeds the lighter weight of its pair: leaving that
cluster out then always lowers the energy, so no minimum has an overlap. Two penalties fulfil this:

- `published`: the number of clusters. Where two overlap that is at least 2, and no weight exceeds 1. The default
  with weights by size, which are the published ones too.
- `tight`: half more than the lighter weight. Annealers find the optimum far more often with it, because the penalties
  do not drown the weights. The default with weights by silhouette.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.overlap import NOISE, Cells
from qloom.errors import InputError

WEIGHTS = ("silhouette", "size")
PENALTIES = ("tight", "published")
TIGHT = 1.5


@dataclass(frozen=True)
class ClusterCandidate:
    """A candidate: which cells it is made of, and which clusterings found it (as "method:label")."""

    found_by: tuple[str, ...]
    cells: tuple[int, ...]
    size: int

    @property
    def name(self) -> str:
        """The name of its variable: the first clustering that found it."""
        return self.found_by[0]


@dataclass(frozen=True)
class Graph:
    """Candidates with their weights; clusters that share a cell form a clique, and cliques hold every overlap."""

    clusters: tuple[ClusterCandidate, ...]
    weights: tuple[float, ...]
    cliques: tuple[tuple[int, ...], ...]
    penalty: str = "tight"

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Pairs of clusters that overlap, sorted."""
        pairs = {(a, b) for clique in self.cliques for at, a in enumerate(clique) for b in clique[at + 1 :]}
        return sorted(pairs)

    @property
    def penalties(self) -> dict[tuple[int, int], float]:
        """What each overlap costs."""
        if self.penalty == "published":
            return dict.fromkeys(self.edges, float(len(self.clusters)))
        return {(a, b): TIGHT * min(self.weights[a], self.weights[b]) for a, b in self.edges}

    def energy(self, chosen: list[int]) -> float:
        """The energy of a choice without overlaps."""
        return -sum(self.weights[i] for i in chosen)


def candidates(cells: Cells, names: list[str]) -> tuple[ClusterCandidate, ...]:
    """Every cluster of every clustering, equal ones once; one of all points separates nothing and is left out."""
    found: dict[tuple[int, ...], list[str]] = {}
    for labels, name, count in zip(cells.labels, names, cells.cluster_counts, strict=True):
        order = np.argsort(labels, kind="stable")
        bounds = np.searchsorted(labels[order], np.arange(count + 1))
        for label in range(count):
            members = tuple(int(cell) for cell in order[bounds[label] : bounds[label + 1]])
            if 0 < len(members) < len(cells.sizes):
                found.setdefault(members, []).append(f"{name}:{label}")
    return tuple(
        ClusterCandidate(tuple(names), members, int(cells.sizes[list(members)].sum()))
        for members, names in found.items()
    )


def graph(
    cells: Cells,
    names: list[str],
    silhouettes: list[NDArray[np.float64]] | None = None,
    penalty: str | None = None,
) -> Graph:
    """The overlap graph, weighted by size, or by silhouettes if each cluster's sum of them is given.

    A sum of silhouettes is high for a cluster that is large, dense and apart; it separates disjoint covers that
    have the same total size. A cluster found by several clusterings takes its best sum; one without a positive weight
    would never be chosen and is left out. Weights are rounded, so that the last bits of a sum cannot make another
    QUBO of it on another machine.
    """
    penalty = penalty or ("published" if silhouettes is None else "tight")
    if penalty not in PENALTIES:
        raise InputError(f"unknown penalty {penalty!r}", hint=" or ".join(PENALTIES))
    found = candidates(cells, names)
    if silhouettes is None:
        raw = [float(cluster.size) for cluster in found]
    else:
        sums = {
            f"{name}:{label}": float(value)
            for name, values in zip(names, silhouettes, strict=True)
            for label, value in enumerate(values)
        }
        raw = [max(0.0, *(sums[name] for name in cluster.found_by)) for cluster in found]
    largest = max(raw, default=0.0) or 1.0
    rounded = [round(value / largest, 6) for value in raw]
    clusters = tuple(cluster for cluster, weight in zip(found, rounded, strict=True) if weight > 0)
    weights = tuple(weight for weight in rounded if weight > 0)
    holders: list[list[int]] = [[] for _ in cells.sizes]
    for index, cluster in enumerate(clusters):
        for cell in cluster.cells:
            holders[cell].append(index)
    cliques = {tuple(holder) for holder in holders if len(holder) > 1}
    return Graph(clusters, weights, tuple(sorted(cliques)), penalty)


def terms(graph: Graph) -> dict[tuple[str, str], float]:
    """The QUBO as a dictionary, in the order of the terms of `model`; variables are named after the clusters."""
    _require_clusters(graph)
    overlapping = [i for edge in graph.edges for i in edge]
    order = list(dict.fromkeys([*overlapping, *range(len(graph.clusters))]))
    place = {i: at for at, i in enumerate(order)}
    names = [graph.clusters[i].name for i in order]
    linear = {(name, name): -graph.weights[i] for name, i in zip(names, order, strict=True)}
    placed = {(place[a], place[b]): bias for (a, b), bias in graph.penalties.items()}
    pairs = sorted((max(pair), min(pair), bias) for pair, bias in placed.items())
    return linear | {(names[u], names[v]): bias for u, v, bias in pairs}


def model(graph: Graph) -> Any:
    """The QUBO as a dimod binary quadratic model."""
    import dimod

    _require_clusters(graph)
    names = [cluster.name for cluster in graph.clusters]
    linear = {name: -weight for name, weight in zip(names, graph.weights, strict=True)}
    quadratic = {(names[a], names[b]): penalty for (a, b), penalty in graph.penalties.items()}
    return dimod.BinaryQuadraticModel(linear, quadratic, 0.0, dimod.BINARY)


def _require_clusters(graph: Graph) -> None:
    if not graph.clusters:
        raise InputError("no clustering found a cluster worth choosing", hint="try other ranges")


def partial_labels(cell_of_point: NDArray[Any], clusters: list[ClusterCandidate]) -> NDArray[np.int32]:
    """The label of each point in some clusters that do not overlap; -1 where none covers it."""
    label_of_cell = np.full(int(cell_of_point.max()) + 1, NOISE, np.int32)
    for label, cluster in enumerate(clusters):
        label_of_cell[list(cluster.cells)] = label
    labels: NDArray[np.int32] = label_of_cell[cell_of_point]
    return labels
