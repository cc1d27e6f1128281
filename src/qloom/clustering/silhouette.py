"""Exact silhouettes, in memory linear in the points, of several clusterings in one pass.

The silhouette of a point compares its mean distance `a` to its own cluster with the smallest mean distance `b`
to another one: (b - a) / max(a, b). All of it follows from one table, the sum of distances from each point to
each cell (see `overlap`), because every cluster is a union of cells. So k clusterings cost one pass over all
pairs, not k. The pass is bound by square roots: points are sorted by cell, so that the inner loop runs over
contiguous coordinates and fills the vector units. Sums are kept in double precision once per short run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.compiled import compiled, in_threads, vectorised
from qloom.clustering.overlap import Cells, Labels, cells_of
from qloom.errors import InputError

ROWS = 512  # points whose sums are kept at once: the table never grows with the data
RUN = 1024  # distances added in the data's precision before they go to a double


def silhouette_samples(
    points: NDArray[Any],
    labelings: list[Labels],
    *,
    rows: NDArray[np.int64] | None = None,
    precision: str = "single",
    threads: int = 1,
) -> NDArray[np.float64]:
    """The silhouette of each point (of `rows`, if given) in each clustering: an array (clusterings, points).

    Noise is no cluster: it has silhouette 0 and no influence on other points. Points alone in their cluster have
    silhouette 0, as have all points of a clustering with fewer than two clusters.
    """
    if precision not in ("single", "double"):
        raise InputError(f"precision must be single or double, not {precision!r}")
    cells = cells_of(labelings)
    if len(points) != len(cells.of_point):
        raise InputError(f"there are {len(points)} points, but labels for {len(cells.of_point)}")
    order = np.argsort(cells.of_point, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(points))
    coordinates = _columns(points, order, np.dtype(np.float32 if precision == "single" else np.float64))
    starts = np.append(0, np.cumsum(cells.sizes)).astype(np.int64)
    asked = order if rows is None else np.asarray(rows, np.int64)
    values = np.zeros((len(labelings), len(asked)), np.float64)
    blocks = [
        (coordinates, starts, cells, place[asked[at : at + ROWS]], cells.of_point[asked[at : at + ROWS]],
         values[:, at : at + ROWS])
        for at in range(0, len(asked), ROWS)
    ]  # fmt: skip
    in_threads(_block, blocks, threads)
    return values[:, place] if rows is None else values


def _columns(points: NDArray[Any], order: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Coordinates by dimension, sorted, centred and scaled: silhouettes do not change, rounding errors shrink."""
    centred = points.T.astype(np.float64)
    centred -= centred.mean(axis=1, keepdims=True)
    scale = np.abs(centred).max(initial=0.0)
    centred /= scale if scale > 0 else 1.0
    return np.ascontiguousarray(centred.astype(dtype)[:, order])


def _block(
    coordinates: NDArray[Any],
    starts: NDArray[np.int64],
    cells: Cells,
    places: NDArray[np.int64],
    own_cells: NDArray[np.int32],
    values: NDArray[np.float64],
) -> None:
    """The silhouettes of some points in every clustering, written to `values`."""
    sums = np.zeros((len(places), len(cells.sizes)), np.float64)
    if len(coordinates) == 2:
        _sums_plane(coordinates[0], coordinates[1], starts, places, sums)
    else:
        _sums(coordinates, starts, places, np.empty(RUN, coordinates.dtype), sums)
    for labels, count, out in zip(cells.labels, cells.cluster_counts, values, strict=True):
        if count >= 2:
            _values(sums, labels, cells.sizes, own_cells, np.zeros(count, np.int64), np.empty(count), out)


@vectorised
def _sums_plane(
    x: NDArray[Any], y: NDArray[Any], starts: NDArray[Any], places: NDArray[Any], sums: NDArray[Any]
) -> None:
    """Sums of distances from some points to each cell, in the plane."""
    for cell in range(len(starts) - 1):
        for low in range(starts[cell], starts[cell + 1], RUN):
            high = min(low + RUN, starts[cell + 1])
            xs = x[low:high]
            ys = y[low:high]
            for row in range(len(places)):
                px = x[places[row]]
                py = y[places[row]]
                total = x.dtype.type(0)
                for j in range(len(xs)):
                    dx = xs[j] - px
                    dy = ys[j] - py
                    total += np.sqrt(dx * dx + dy * dy)
                sums[row, cell] += total


@vectorised
def _sums(
    coordinates: NDArray[Any], starts: NDArray[Any], places: NDArray[Any], squares: NDArray[Any], sums: NDArray[Any]
) -> None:
    """The same in any dimension: squares are gathered dimension by dimension in a short buffer."""
    for cell in range(len(starts) - 1):
        for low in range(starts[cell], starts[cell + 1], RUN):
            length = min(low + RUN, starts[cell + 1]) - low
            for row in range(len(places)):
                squares[:length] = 0
                for dimension in range(len(coordinates)):
                    run = coordinates[dimension, low : low + length]
                    p = coordinates[dimension, places[row]]
                    for j in range(length):
                        squares[j] += (run[j] - p) * (run[j] - p)
                total = coordinates.dtype.type(0)
                for j in range(length):
                    total += np.sqrt(squares[j])
                sums[row, cell] += total


@compiled
def _values(
    sums: NDArray[Any],
    labels: NDArray[Any],
    sizes: NDArray[Any],
    cells: NDArray[Any],
    members: NDArray[Any],
    distance: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """Silhouettes of some points in one clustering, from their sums of distances to each cell.

    `members` counts each cluster's points, from zero; `distance` is where the sums to each cluster are gathered.
    """
    for cell in range(len(labels)):
        if labels[cell] >= 0:
            members[labels[cell]] += sizes[cell]
    for row in range(len(sums)):
        own = labels[cells[row]]
        if own < 0 or members[own] == 1:
            continue
        distance[:] = 0.0
        for cell in range(len(labels)):
            if labels[cell] >= 0:
                distance[labels[cell]] += sums[row, cell]
        nearest = np.inf
        for cluster in range(len(members)):
            if cluster != own and members[cluster] > 0:
                nearest = min(nearest, distance[cluster] / members[cluster])
        inside = distance[own] / (members[own] - 1)
        larger = max(inside, nearest)
        if larger > 0.0 and larger < np.inf:
            out[row] = (nearest - inside) / larger
