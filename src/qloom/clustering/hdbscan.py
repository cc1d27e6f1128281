"""HDBSCAN: DBSCAN for all eps at once, keeping the clusters that live longest as eps shrinks.

The spanning tree of mutual reachability distances is cut from the top. A part of fewer than `min_size` points
falls out of its cluster; a cluster whose two parts are both large enough ends, and two begin. Each is worth
the time (in 1 / distance) that its points stay in it, and the most valuable clusters that are not nested win.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.compiled import compiled
from qloom.clustering.data import Points
from qloom.clustering.kdtrees import spanning_tree
from qloom.clustering.linkage import numbered
from qloom.clustering.overlap import NOISE, Labels
from qloom.errors import InputError


def hdbscan(points: Points, min_size: int, min_pts: int) -> Labels:
    """Labels, with -1 for noise; `min_pts` counts the point itself, as in scikit-learn."""
    if min_size < 2:
        raise InputError(f"HDBSCAN: min_size must be at least 2, not {min_size}")
    if not 1 <= min_pts < len(points):
        raise InputError(f"HDBSCAN: min_pts must be from 1 to {len(points) - 1}, not {min_pts}")
    lengths, edges = spanning_tree(points, min_pts - 1)
    count = len(points)
    children, sizes = np.empty((count - 1, 2), np.int64), np.ones(2 * count - 1, np.int64)
    _dendrogram(edges.astype(np.int64), np.arange(2 * count - 1), children, sizes)
    positive = lengths[lengths > 0]
    closest = positive[0] if len(positive) else 1.0
    cluster_of, inside = np.zeros(2 * count - 1, np.int64), np.ones(2 * count - 1, np.bool_)
    above = np.full(2 * count, -1, np.int64)
    born, worth = np.zeros(2 * count), np.zeros(2 * count)
    density = 1.0 / np.maximum(lengths, closest)
    clusters = _condense(children, sizes, density, min_size, cluster_of, inside, above, born, worth)
    top = np.full(clusters, NOISE, np.int64)
    _select(above, worth, np.zeros(clusters), top)
    names = top[cluster_of[:count]]
    labels = np.full(len(points), NOISE, np.int32)
    labels[names != NOISE] = numbered(names[names != NOISE])
    return labels


@compiled
def _dendrogram(edges: NDArray[Any], parent: NDArray[Any], children: NDArray[Any], sizes: NDArray[Any]) -> None:
    """The two parts of each join (points come first, then joins in their order), and all sizes."""
    count = len(edges) + 1
    for step in range(count - 1):
        for side in range(2):
            part = edges[step, side]
            while parent[part] != part:
                parent[part] = parent[parent[part]]
                part = parent[part]
            children[step, side] = part
            parent[part] = count + step
        sizes[count + step] = sizes[children[step, 0]] + sizes[children[step, 1]]


@compiled
def _condense(
    children: NDArray[Any],
    sizes: NDArray[Any],
    density: NDArray[Any],
    min_size: int,
    cluster_of: NDArray[Any],
    inside: NDArray[Any],
    above: NDArray[Any],
    born: NDArray[Any],
    worth: NDArray[Any],
) -> int:
    """The innermost cluster of each point; returns how many there are. Parts have smaller numbers than wholes."""
    count = len(children) + 1
    clusters = 1
    for step in range(count - 2, -1, -1):
        node = count + step
        own = cluster_of[node]
        left = children[step, 0]
        right = children[step, 1]
        splits = inside[node] and sizes[left] >= min_size and sizes[right] >= min_size
        for side in range(2):
            part = children[step, side]
            cluster_of[part] = own
            inside[part] = inside[node] and sizes[part] >= min_size
            if inside[node] and (splits or not inside[part]):
                worth[own] += sizes[part] * (density[step] - born[own])
            if splits:
                cluster_of[part] = clusters
                above[clusters] = own
                born[clusters] = density[step]
                clusters += 1
    return clusters


@compiled
def _select(above: NDArray[Any], worth: NDArray[Any], below: NDArray[Any], top: NDArray[Any]) -> None:
    """The outermost selected cluster around each; a cluster is selected if it is worth more than all inside it."""
    for cluster in range(len(top) - 1, 0, -1):
        below[above[cluster]] += max(worth[cluster], below[cluster])
    for cluster in range(1, len(top)):
        around = top[above[cluster]]
        if around >= 0:
            top[cluster] = around
        elif worth[cluster] >= below[cluster]:
            top[cluster] = cluster
