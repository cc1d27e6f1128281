"""Hierarchical clustering as a list of joins, cheapest first: cutting it at any k then takes milliseconds.

Single linkage is the minimum spanning tree of the points.
A join names two points whose clusters become one, so trees of any linkage have the same form: (points - 1, 2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.compiled import compiled
from qloom.clustering.data import Points
from qloom.clustering.forest import join, numbered
from qloom.clustering.mst import spanning_tree
from qloom.clustering.overlap import Labels
from qloom.clustering.ward import ward_joins
from qloom.errors import InputError

Joins = NDArray[np.int32]


def tree(points: Points, linkage: str = "single") -> Joins:
    """All joins of a hierarchical clustering, in the order of the distance at which they happen."""
    if linkage == "single":
        return spanning_tree(points)[1].astype(np.int32)
    if linkage == "ward":
        return ward_joins(points)
    raise InputError(f"there is no linkage {linkage!r}", hint="single or ward")


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
