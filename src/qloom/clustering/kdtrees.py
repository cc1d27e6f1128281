"""Exact minimum spanning trees and nearest neighbours of points, from kd-trees: never a matrix of distances.

In few dimensions neighbours come from the library that also makes spanning trees: it loads at once, where scipy
takes longer to import than to search. Both compute the same distances, to the last bit, in up to three dimensions.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.data import Points


def spanning_tree(points: Points, reach: int = 0) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Lengths and edges, shortest first; of mutual reachability distances if `reach` (neighbours) is positive."""
    lengths, edges = library().mst_euclid(planar(points), M=reach)[:2]
    order = np.lexsort((edges[:, 1], edges[:, 0], lengths))
    return lengths[order], edges[order]


def library() -> Any:
    """quitefastmst with one thread, so that ties are broken the same way on every machine."""
    quitefastmst = import_module("quitefastmst")
    quitefastmst.omp_set_num_threads(1)
    return quitefastmst


def planar(points: Points) -> Points:
    """A copy, since shared points are read-only; the library wants a plane, and a line in it will do."""
    return np.column_stack([points, np.zeros(len(points))]) if points.shape[1] == 1 else np.array(points)


FEW = 3  # dimensions


def kth_distances(points: Points, queries: Points, k: int) -> NDArray[np.float64]:
    """How far each query's k-th nearest point is away; a query that is one of the points is its own first."""
    if points.shape[1] <= FEW and k < len(points):
        return np.asarray(_search(points, queries, k)[0][:, -1])
    from scipy.spatial import cKDTree

    return np.asarray(cKDTree(points).query(queries, k=[k])[0][:, 0])


def nearest(points: Points, queries: Points) -> NDArray[Any]:
    """The index of the point nearest to each query."""
    if points.shape[1] <= FEW and len(points) > 2:
        distances, found = _search(points, queries, 2)
        if (distances[:, 0] < distances[:, 1]).all():
            return np.asarray(found[:, 0])
    from scipy.spatial import cKDTree  # which breaks ties, if there are any

    return np.asarray(cKDTree(points).query(queries)[1])


def _search(points: Points, queries: Points, k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    found: tuple[NDArray[Any], NDArray[Any]] = library().knn_euclid(planar(points), k=k, Y=planar(queries))
    return found
