"""Hierarchical clustering as a list of joins, cheapest first: cutting it at any k then takes milliseconds.

Single linkage is the minimum spanning tree of the points. Ward's linkage follows chains of nearest neighbours: exact,
linear memory, time that grows with the square. A join names two points whose clusters become one, so trees of any
linkage have the same form: (points - 1, 2). The disjoint sets that joins are made with serve other clusterings too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.compiled import compiled, vectorised
from qloom.clustering.data import Points
from qloom.clustering.kdtrees import spanning_tree
from qloom.clustering.overlap import Labels
from qloom.errors import InputError

Joins = NDArray[np.int32]
FAR = 1e300  # not infinity, which fast arithmetic does not know


def tree(points: Points, linkage: str = "single") -> Joins:
    """All joins of a hierarchical clustering, in the order of the distance at which they happen."""
    if linkage == "single":
        return spanning_tree(points)[1].astype(np.int32)
    if linkage == "ward":
        return ward_joins(points)
    raise InputError(f"unknown linkage {linkage!r}", hint="single or ward")


def cut(joins: Joins, k: int) -> Labels:
    """Labels of the k clusters that are left when the last k - 1 joins are not made."""
    count = len(joins) + 1
    if not 1 <= k <= count:
        raise InputError(f"hierarchical: k = {k} clusters cannot be made of {count} points")
    parent = np.arange(count)
    _join(np.ascontiguousarray(joins), count - k, parent)
    return numbered(parent)


@compiled
def _join(joins: NDArray[Any], steps: int, parent: NDArray[Any]) -> None:
    """Make the first joins; then every entry names its root."""
    for step in range(steps):
        join(parent, joins[step, 0], joins[step, 1])
    for i in range(len(parent)):
        parent[i] = parent[parent[i]]  # parents have smaller numbers, so theirs are roots already


def ward_joins(points: Points) -> NDArray[np.int32]:
    """The joins of Ward's linkage, cheapest first; a cluster is named by one of its points.

    A cluster is its mean and its size. A chain of nearest neighbours ends in a mutual pair, which can be joined at
    once: with Ward's distance, later joins never bring anything closer than that.
    """
    count = len(points)
    means = np.array(points.T, order="C")  # always a copy: shared points are read-only
    joins = np.empty((count - 1, 2), np.int64)
    heights = np.empty(count - 1)
    _chain(means, np.ones(count), np.arange(count), np.empty(count), np.empty(count + 1, np.int64), joins, heights)
    return np.asarray(joins[np.argsort(heights, kind="stable")], np.int32)


@compiled
def _chain(
    means: NDArray[Any],
    sizes: NDArray[Any],
    names: NDArray[Any],
    cost: NDArray[Any],
    chain: NDArray[Any],
    joins: NDArray[Any],
    heights: NDArray[Any],
) -> None:
    """All joins and what each costs. Slots are kept dense: a cluster that is gone is replaced by the last one."""
    dimensions, count = means.shape
    length = 0
    for step in range(count - 1):
        active = count - step
        if length == 0:
            chain[0] = 0
            length = 1
        while True:
            tip = chain[length - 1]
            before = chain[length - 2] if length > 1 else -1
            best = _costs(means, sizes, tip, active, cost)
            if before >= 0 and cost[before] == best:
                break
            nearest = 0
            while cost[nearest] != best:
                nearest += 1
            chain[length] = nearest
            length += 1
        length -= 2
        joins[step, 0] = names[before]
        joins[step, 1] = names[tip]
        heights[step] = best
        total = sizes[before] + sizes[tip]
        for dimension in range(dimensions):
            means[dimension, before] = (
                sizes[before] * means[dimension, before] + sizes[tip] * means[dimension, tip]
            ) / total
        sizes[before] = total
        last = active - 1
        for dimension in range(dimensions):
            means[dimension, tip] = means[dimension, last]
        sizes[tip] = sizes[last]
        names[tip] = names[last]
        for link in range(length):
            if chain[link] == last:
                chain[link] = tip


@vectorised
def _costs(means: NDArray[Any], sizes: NDArray[Any], tip: int, active: int, cost: NDArray[Any]) -> float:
    """What joining the tip with each cluster would add to the sum of squares; returns the least."""
    cost[:active] = 0.0
    for dimension in range(len(means)):
        row = means[dimension]
        at = row[tip]
        for slot in range(active):
            cost[slot] += (row[slot] - at) * (row[slot] - at)
    for slot in range(active):
        cost[slot] *= sizes[tip] * sizes[slot] / (sizes[tip] + sizes[slot])
    cost[tip] = FAR
    least = FAR
    for slot in range(active):
        least = min(least, cost[slot])
    return least


# Disjoint sets as a forest in one array: each entry names its parent, roots name themselves.


@compiled
def find(parent: NDArray[Any], i: int) -> int:
    """The root of a set; the path to it is halved on the way."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@compiled
def join(parent: NDArray[Any], i: int, j: int) -> None:
    """Make one set of two; the smaller root stays, so the outcome does not depend on the order."""
    a = find(parent, i)
    b = find(parent, j)
    if a < b:
        parent[b] = a
    else:
        parent[a] = b


def numbered(names: NDArray[Any]) -> NDArray[np.int32]:
    """Any integer names as 0, 1, 2... in the order in which they first appear."""
    present, first, places = np.unique(names, return_index=True, return_inverse=True)
    rank = np.empty(len(present), np.int32)
    rank[np.argsort(first)] = np.arange(len(present), dtype=np.int32)
    return rank[places.reshape(-1)]
