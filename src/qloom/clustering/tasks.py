"""The classical work of the program, as tasks. Heavy imports wait until a worker runs one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.answer import compact, cover
from qloom.clustering.data import Points
from qloom.clustering.overlap import NOISE, Labels
from qloom.errors import InputError
from qloom.model import task


@task
def find_eps_range(points: Points, min_pts: int) -> tuple[float, float]:
    """The range that DBSCAN's eps is drawn from; the same for all iterations."""
    from qloom.clustering.parameters import eps_range

    return eps_range(points, min_pts)


@task
def hierarchy(points: Points, linkage: str) -> NDArray[np.int32]:
    """The tree of a hierarchical clustering; the same for all iterations, whatever their k."""
    from qloom.clustering.linkage import tree

    return tree(points, linkage)


@task
def clustering(points: Points, parameters: dict[str, Any], joins: NDArray[np.int32] | None = None) -> Labels:
    """The labels of one clustering; a hierarchical one only cuts its tree."""
    return compact(_labels(points, parameters, joins))


def _labels(points: Points, parameters: dict[str, Any], joins: NDArray[np.int32] | None) -> Labels:
    given = dict(parameters)
    method = given.pop("method")
    if method == "kmeans":
        from qloom.clustering.kmeans import kmeans

        return kmeans(points, **given)
    if method == "dbscan":
        from qloom.clustering.dbscan import dbscan

        return dbscan(points, **given)
    if method == "hdbscan":
        from qloom.clustering.hdbscan import hdbscan

        return hdbscan(points, **given)
    if method in ("single", "ward"):
        from qloom.clustering.linkage import cut, tree

        return cut(tree(points, method) if joins is None else joins, **given)
    raise InputError(f"there is no clustering method {method!r}")


@task
def cluster_silhouettes(
    points: Points, rows: NDArray[np.int64] | None, precision: str, threads: int, *labelings: Labels
) -> list[NDArray[np.float64]]:
    """Each cluster's sum of silhouettes in its own clustering (over the sampled rows, if any)."""
    from qloom.clustering.silhouette import silhouette_samples

    values = silhouette_samples(points, list(labelings), rows=rows, precision=precision, threads=threads)
    sums = []
    for labels, of_points in zip(labelings, values, strict=True):
        seen = labels if rows is None else labels[rows]
        inside = seen != NOISE
        count = int(labels.max(initial=NOISE)) + 1
        sums.append(np.bincount(seen[inside], of_points[inside], count).astype(np.float64))
    return sums


@task
def partition(
    points: Points, labels: Labels, rows: NDArray[np.int64] | None, precision: str, threads: int, score: bool
) -> tuple[Labels, float | None]:
    """Every point's label, and the mean silhouette; None if it was not asked for, or there is only one cluster."""
    complete = compact(cover(points, labels))
    if not score or int(complete.max(initial=0)) < 1:
        return complete, None
    from qloom.clustering.silhouette import silhouette_samples

    values = silhouette_samples(points, [complete], rows=rows, precision=precision, threads=threads)
    return complete, round(float(values.mean()), 6)
