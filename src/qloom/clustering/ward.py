"""Ward's linkage by chains of nearest neighbours: exact, linear memory, time that grows with the square.

A cluster is its mean and its size. A chain of nearest neighbours ends in a mutual pair, which can be joined at
once: with Ward's distance, later joins never bring anything closer than that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.compiled import compiled, vectorised
from qloom.clustering.data import Points

FAR = 1e300  # not infinity, which fast arithmetic does not know


def ward_joins(points: Points) -> NDArray[np.int32]:
    """The joins of Ward's linkage, cheapest first; a cluster is named by one of its points."""
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
