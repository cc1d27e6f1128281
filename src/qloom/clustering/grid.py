"""A grid over the points, for finding neighbours within eps.

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

DIMENSIONS = 3  # data of more dimensions is gridded over its three widest ones
WIDEST = 2**20  # cells along one dimension, so that keys of three dimensions fit in an integer


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
