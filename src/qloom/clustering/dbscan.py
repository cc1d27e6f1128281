"""DBSCAN on a grid: exact, in memory linear in the points.

In one to three dimensions the cells are so small that all points of a cell are neighbours: a cell with `min_pts`
points holds only core points, and clusters are joined cell by cell. In more dimensions the grid only serves to find
candidates, and clusters are joined point by point.

Cells of a row (the last dimension) have consecutive keys, and a border around the grid keeps rows apart: all
neighbours of a cell in one row of cells are one range of the points, once these are sorted by key.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.compiled import compiled
from qloom.clustering.data import Points
from qloom.clustering.linkage import find, join, numbered
from qloom.clustering.overlap import NOISE, Labels
from qloom.errors import InputError

DIMENSIONS = 3  # data of more dimensions is gridded over its three widest ones
WIDEST = 2**20  # cells along one dimension, so that keys of three dimensions fit in an integer


def dbscan(points: Points, eps: float, min_pts: int) -> Labels:
    """Labels, with -1 for noise; a border point goes to the cluster of its nearest core point.

    `min_pts` counts the point itself, as in scikit-learn.
    """
    if not (eps > 0 and np.isfinite(eps)):
        raise InputError(f"DBSCAN: eps must be a positive number, not {eps}")
    if min_pts < 1:
        raise InputError(f"DBSCAN: min_pts must be at least 1, not {min_pts}")
    cells = grid(points, eps)
    where = (np.ascontiguousarray(points[cells.order]), cells.starts, cells.keys, cells.rows, cells.reach)
    square = float(eps) * float(eps)
    core = np.zeros(len(points), np.bool_)
    _mark_core_points(*where, square, min_pts, cells.whole_cells, core)
    parent = np.arange(len(points))
    if cells.whole_cells:
        cores = np.flatnonzero(core)
        bounds = np.searchsorted(cores, cells.starts)
        box = np.empty((2, points.shape[1]))
        _join_by_cell(where[0][cores], cores, bounds, *where[2:], square, box, parent)
    else:
        _join_by_point(*where, square, core, parent)
    found = np.full(len(points), NOISE, np.int32)
    _label(*where, square, core, parent, found)
    labels = np.empty_like(found)
    labels[cells.order] = found
    clustered = labels != NOISE
    labels[clustered] = numbered(labels[clustered])
    return labels


@compiled
def _mark_core_points(
    points: NDArray[Any],
    starts: NDArray[Any],
    keys: NDArray[Any],
    rows: NDArray[Any],
    reach: int,
    square: float,
    min_pts: int,
    whole_cells: bool,
    core: NDArray[Any],
) -> None:
    """Mark the points that have enough neighbours; counting stops as soon as they do."""
    for cell in range(len(keys)):
        if whole_cells and starts[cell + 1] - starts[cell] >= min_pts:
            core[starts[cell] : starts[cell + 1]] = True
            continue
        for i in range(starts[cell], starts[cell + 1]):
            found = 0
            for row in rows:
                first, last = row_of_cells(keys, keys[cell] + row, reach)
                for j in range(starts[first], starts[last]):
                    found += square_distance(points[i], points[j]) <= square
                    if found >= min_pts:
                        break
                if found >= min_pts:
                    core[i] = True
                    break


@compiled
def _join_by_point(
    points: NDArray[Any],
    starts: NDArray[Any],
    keys: NDArray[Any],
    rows: NDArray[Any],
    reach: int,
    square: float,
    core: NDArray[Any],
    parent: NDArray[Any],
) -> None:
    """Join core points within eps of each other."""
    for cell in range(len(keys)):
        for row in rows:
            first, last = row_of_cells(keys, keys[cell] + row, reach)
            for i in range(starts[cell], starts[cell + 1]):
                for j in range(starts[first], min(starts[last], i)):
                    apart = core[i] and core[j] and find(parent, i) != find(parent, j)
                    if apart and square_distance(points[i], points[j]) <= square:
                        join(parent, i, j)


@compiled
def _join_by_cell(
    points: NDArray[Any],
    cores: NDArray[Any],
    bounds: NDArray[Any],
    keys: NDArray[Any],
    rows: NDArray[Any],
    reach: int,
    square: float,
    box: NDArray[Any],
    parent: NDArray[Any],
) -> None:
    """The same where all core points of a cell belong together: one near pair joins two cells.

    `points` are the core points alone, `cores` their places among all, `bounds` where those of each cell begin.
    """
    for cell in range(len(keys)):
        own = points[bounds[cell] : bounds[cell + 1]]
        for i in range(bounds[cell], bounds[cell + 1]):
            parent[cores[i]] = cores[bounds[cell]]
        if len(own) == 0:
            continue
        for row in rows:
            first, last = row_of_cells(keys, keys[cell] + row, reach)
            for other in range(first, min(last, cell)):
                if bounds[other] == bounds[other + 1]:
                    continue
                a, b = cores[bounds[cell]], cores[bounds[other]]
                if find(parent, a) == find(parent, b):
                    continue
                if _touch(own, points[bounds[other] : bounds[other + 1]], square, box):
                    join(parent, a, b)


@compiled
def _touch(own: NDArray[Any], others: NDArray[Any], square: float, box: NDArray[Any]) -> bool:
    """Whether any of some points is within eps of any of some others; those far from the others' box are skipped."""
    dimensions = own.shape[1]
    low, high = box[0], box[1]
    low[:] = np.inf
    high[:] = -np.inf
    for j in range(len(others)):
        for dimension in range(dimensions):
            low[dimension] = min(low[dimension], others[j, dimension])
            high[dimension] = max(high[dimension], others[j, dimension])
    for i in range(len(own)):
        to_box = 0.0
        for dimension in range(dimensions):
            at = own[i, dimension]
            to_box += max(low[dimension] - at, at - high[dimension], 0.0) ** 2
        if to_box > square * (1 + 1e-9):
            continue
        for j in range(len(others)):
            if square_distance(own[i], others[j]) <= square:
                return True
    return False


@compiled
def _label(
    points: NDArray[Any],
    starts: NDArray[Any],
    keys: NDArray[Any],
    rows: NDArray[Any],
    reach: int,
    square: float,
    core: NDArray[Any],
    parent: NDArray[Any],
    labels: NDArray[Any],
) -> None:
    """The root of each core point's set, of the nearest core point's for border points; noise stays as it is."""
    for cell in range(len(keys)):
        for i in range(starts[cell], starts[cell + 1]):
            if core[i]:
                labels[i] = find(parent, i)
                continue
            best = np.inf
            for row in rows:
                first, last = row_of_cells(keys, keys[cell] + row, reach)
                for j in range(starts[first], starts[last]):
                    if core[j]:
                        distance = square_distance(points[i], points[j])
                        if distance <= square and distance < best:
                            best = distance
                            labels[i] = find(parent, j)


@dataclass(frozen=True)
class Grid:
    """Points in the order of their cells. With `whole_cells`, all points of a cell are within eps of each other."""

    order: NDArray[np.int64]
    keys: NDArray[np.int64]  # of the cells that hold points
    starts: NDArray[np.int64]  # where the points of each cell begin, and the end
    rows: NDArray[np.int64]  # key offsets of the rows that can hold neighbours, nearest first
    reach: int  # how many cells to look at on either side in a row
    whole_cells: bool


def grid(points: Points, eps: float) -> Grid:
    """Lay a grid over the points: cells are small enough to hold only neighbours, if the dimension allows."""
    dimensions = points.shape[1]
    spans = np.ptp(points, axis=0)
    # A hair less than eps over the root: rounding must not put two points of a cell farther apart than eps.
    side = eps / np.sqrt(dimensions) * (1 - 1e-9)
    whole_cells = dimensions <= DIMENSIONS and bool((spans / side < WIDEST).all())
    if not whole_cells:
        side = max(eps * (1 + 1e-9), float(spans.max()) / WIDEST)
    widest = np.sort(np.argsort(-spans, kind="stable")[:DIMENSIONS])
    reach = int(eps / side * (1 + 1e-9)) + 1
    cells = ((points[:, widest] - points[:, widest].min(axis=0)) / side).astype(np.int64) + reach
    widths = cells.max(axis=0) + 1 + reach
    strides = np.append(np.cumprod(widths[:0:-1])[::-1], 1).astype(np.int64)
    others = len(widest) - 1
    steps = list(itertools.product(range(-reach, reach + 1), repeat=others))
    rows = np.array(steps, np.int64).reshape(len(steps), others)
    rows = rows[np.argsort((rows**2).sum(axis=1), kind="stable")]
    keys = cells @ strides
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    ends = np.append(starts, len(keys)).astype(np.int64)
    return Grid(order, keys[order][starts], ends, rows @ strides[:-1], reach, whole_cells)


@compiled
def row_of_cells(keys: NDArray[Any], key: int, reach: int) -> tuple[int, int]:
    """The cells with keys from `key - reach` to `key + reach`, as a range of indices."""
    first = int(np.searchsorted(keys, key - reach))
    last = first
    while last < len(keys) and keys[last] <= key + reach:
        last += 1
    return first, last


@compiled
def square_distance(a: NDArray[Any], b: NDArray[Any]) -> float:
    """The square of the distance between two points."""
    total = 0.0
    for dimension in range(len(a)):
        total += (a[dimension] - b[dimension]) ** 2
    return total
