"""Minimum spanning trees of points, exact, from kd-trees: never a matrix of distances."""

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
