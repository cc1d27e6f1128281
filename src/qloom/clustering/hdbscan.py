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
from qloom.clustering.forest import numbered
from qloom.clustering.mst import spanning_tree
from qloom.clustering.overlap import NOISE, Labels
from qloom.errors import InputError


def hdbscan(points: Points, min_size: int, min_pts: int) -> Labels:
    """Labels, with -1 for noise; `min_pts` counts the point itself, as in scikit-learn."""
    if min_size < 2:
        raise InputError(f"HDBSCAN: min_size must be at least 2, not {min_size}")
    if not 1 <= min_pts < len(points):
        raise InputError(f"HDBSCAN: min_pts must be from 1 to {len(points) - 1}, not {min_pts}")
    lengths, edges = spanning_tree(points, min_pts - 1)
    children, sizes = _dendrogram(edges.astype(np.int64))
    positive = lengths[lengths > 0]
    closest = positive[0] if len(positive) else 1.0
    names = _select(children, sizes, 1.0 / np.maximum(lengths, closest), min_size)
    labels = np.full(len(points), NOISE, np.int32)
    labels[names != NOISE] = numbered(names[names != NOISE])
    return labels


@compiled
def _dendrogram(edges: NDArray[Any]) -> tuple[Any, Any]:
    """The two parts of each join (points come first, then joins in their order), and all sizes."""
    count = len(edges) + 1
    parent = np.arange(2 * count - 1)
    sizes = np.ones(2 * count - 1, np.int64)
    children = np.empty((count - 1, 2), np.int64)
    for step in range(count - 1):
        for side in range(2):
            part = edges[step, side]
            while parent[part] != part:
                parent[part] = parent[parent[part]]
                part = parent[part]
            children[step, side] = part
            parent[part] = count + step
        sizes[count + step] = sizes[children[step, 0]] + sizes[children[step, 1]]
    return children, sizes


@compiled
def _select(children: NDArray[Any], sizes: NDArray[Any], density: NDArray[Any], min_size: int) -> NDArray[Any]:
    """The selected cluster of each point, or -1. Parents have larger numbers than their parts: no recursion."""
    count = len(children) + 1
    cluster_of = np.zeros(2 * count - 1, np.int64)
    inside = np.ones(2 * count - 1, np.bool_)
    above = np.full(2 * count, -1, np.int64)
    born = np.zeros(2 * count)
    worth = np.zeros(2 * count)
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
    below = np.zeros(clusters)
    selected = np.zeros(clusters, np.bool_)
    for cluster in range(clusters - 1, 0, -1):
        selected[cluster] = worth[cluster] >= below[cluster]
        below[above[cluster]] += max(worth[cluster], below[cluster])
    top = np.full(clusters, -1, np.int64)  # the outermost selected cluster around each
    for cluster in range(1, clusters):
        around = top[above[cluster]]
        top[cluster] = around if around >= 0 else (cluster if selected[cluster] else -1)
    return top[cluster_of[:count]]
