"""k-means: greedy k-means++ starts, then Lloyd's steps, the best of a few starts.

Written here rather than taken from scikit-learn so that the same seed gives the same labels whatever the number
of threads, and so that workers need not load more than numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.compiled import compiled, vectorised
from qloom.clustering.data import Points
from qloom.clustering.overlap import Labels
from qloom.errors import InputError

STEPS = 300
RUN = 1024  # points that are assigned at once


def kmeans(points: Points, k: int, *, seed: int, starts: int = 3) -> Labels:
    """Labels of the best of `starts` runs, by the sum of squared distances to the cluster means."""
    if not 1 <= k <= len(points):
        raise InputError(f"k-means: k = {k} clusters cannot be made of {len(points)} points")
    random = np.random.default_rng(seed)
    trials = 2 + int(np.log(k))
    columns = np.array(points.T, order="C")  # always a copy: shared points are read-only
    columns -= columns.mean(axis=1, keepdims=True)
    tolerance = 1e-4 * float(columns.var(axis=1).mean())
    best, fewest = np.zeros(len(points), np.int32), np.inf
    for draws in [random.random((k, trials)) for _ in range(starts)]:
        centers = np.empty((len(columns), k))
        _start(columns, draws, centers, np.empty((4, len(points))))
        labels = np.zeros(len(points), np.int32)
        sums, sizes = np.empty_like(centers), np.empty(k, np.int64)
        total = _lloyd(columns, centers, tolerance, STEPS, labels, np.empty(len(points)), sums, sizes, np.empty(RUN))
        if total < fewest:
            best, fewest = labels, total
    return best


@compiled
def _start(columns: NDArray[Any], draws: NDArray[Any], centers: NDArray[Any], scratch: NDArray[Any]) -> None:
    """Greedy k-means++: each new centre is the best of some points drawn by squared distance."""
    count = columns.shape[1]
    k, trials = draws.shape
    nearest, candidate, chosen, cumulative = scratch[0], scratch[1], scratch[2], scratch[3]
    nearest[:] = np.inf
    for center in range(k):
        total = 0.0
        for i in range(count):
            total += nearest[i]
            cumulative[i] = total
        best = np.inf
        for trial in range(trials if center else 1):
            if center == 0 or cumulative[-1] == 0.0:
                index = min(int(draws[center, trial] * count), count - 1)
            else:
                index = np.searchsorted(cumulative, draws[center, trial] * cumulative[-1], side="right")
                index = min(index, count - 1)
            potential = _approach(columns, index, nearest, candidate)
            if potential < best:
                best = potential
                for i in range(count):
                    chosen[i] = candidate[i]
                for dimension in range(len(columns)):
                    centers[dimension, center] = columns[dimension, index]
        for i in range(count):
            nearest[i] = chosen[i]


@compiled
def _approach(columns: NDArray[Any], index: int, nearest: NDArray[Any], out: NDArray[Any]) -> float:
    """Squared distances to the nearest centre if the point `index` became one; returns their sum."""
    out[:] = 0.0
    for dimension in range(len(columns)):
        column = columns[dimension]
        at = column[index]
        for i in range(len(out)):
            out[i] += (column[i] - at) * (column[i] - at)
    total = 0.0
    for i in range(len(out)):
        out[i] = min(out[i], nearest[i])
        total += out[i]
    return total


@compiled
def _lloyd(
    columns: NDArray[Any],
    centers: NDArray[Any],
    tolerance: float,
    steps: int,
    labels: NDArray[Any],
    nearest: NDArray[Any],
    sums: NDArray[Any],
    sizes: NDArray[Any],
    square: NDArray[Any],
) -> float:
    """Move centres to the means of their points until they rest; returns the sum of squared distances."""
    dimensions, count = columns.shape
    k = centers.shape[1]
    for _ in range(steps):
        _assign(columns, centers, labels, nearest, square)
        sums[:] = 0.0
        sizes[:] = 0
        for i in range(count):
            sizes[labels[i]] += 1
        for dimension in range(dimensions):
            for i in range(count):
                sums[dimension, labels[i]] += columns[dimension, i]
        moved = 0.0
        for cluster in range(k):
            for dimension in range(dimensions):
                if sizes[cluster] == 0:  # an empty cluster restarts at the point that is farthest from its centre
                    to = columns[dimension, np.argmax(nearest)]
                else:
                    to = sums[dimension, cluster] / sizes[cluster]
                moved += (to - centers[dimension, cluster]) ** 2
                centers[dimension, cluster] = to
            if sizes[cluster] == 0:
                nearest[np.argmax(nearest)] = 0.0
        if moved <= tolerance:
            break
    _assign(columns, centers, labels, nearest, square)
    total = 0.0
    for i in range(count):
        total += nearest[i]
    return total


@vectorised
def _assign(
    columns: NDArray[Any],
    centers: NDArray[Any],
    labels: NDArray[Any],
    nearest: NDArray[Any],
    square: NDArray[Any],
) -> None:
    """The nearest centre of each point, in short runs that stay in the cache and fill the vector units."""
    count = columns.shape[1]
    for low in range(0, count, RUN):
        length = min(RUN, count - low)
        for cluster in range(centers.shape[1]):
            for dimension in range(len(columns)):
                column = columns[dimension, low : low + length]
                at = centers[dimension, cluster]
                for i in range(length):
                    difference = column[i] - at
                    square[i] = difference * difference + (square[i] if dimension else 0.0)
            for i in range(length):
                closer = cluster == 0 or square[i] < nearest[low + i]
                nearest[low + i] = square[i] if closer else nearest[low + i]
                labels[low + i] = cluster if closer else labels[low + i]
