"""How clusterings of the same points overlap and how alike they are, from one pass over the points.

Points with the same label in every clustering form a *cell*. There are few cells, so every question about
overlaps is answered on them: which clusters share points, which are equal, how large they are. So is how alike two
partitions are: the adjusted Rand index and the normalised mutual information.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.errors import InputError

Labels = NDArray[Any]  # any signed integer type; -1 is noise
NOISE = -1


@dataclass(frozen=True)
class Cells:
    """The common refinement of some clusterings."""

    of_point: NDArray[np.int32]  # the cell of each point
    labels: NDArray[np.int64]  # (clusterings, cells): which cluster of each clustering a cell lies in, or NOISE
    sizes: NDArray[np.int64]  # points per cell

    @cached_property
    def cluster_counts(self) -> tuple[int, ...]:
        """How many clusters each clustering has."""
        return tuple(int(row.max(initial=NOISE)) + 1 for row in self.labels)


def cells_of(labelings: list[Labels]) -> Cells:
    """Find the cells of some clusterings; cells are numbered in the order of their labels."""
    if not labelings:
        raise InputError("no clusterings were given", hint="give at least one array of labels")
    points = len(labelings[0])
    code = np.zeros(points, np.int64)
    tuples = np.zeros((0, 1), np.int64)
    for position, labels in enumerate(labelings):
        if labels.shape != (points,):
            raise InputError(
                f"clustering {position} has labels for {labels.shape} points, the first one for {points}"
            )
        if points and labels.min() < NOISE:
            raise InputError(f"clustering {position} has a label below -1", hint="-1 marks noise")
        # Codes are made dense again after every clustering, so they never outgrow the table of counts.
        width = int(labels.max(initial=NOISE)) + 2
        code = code * width + (labels.astype(np.int64) + 1)
        present, code = _dense(code, tuples.shape[1] * width)
        tuples = np.vstack([tuples[:, present // width], present % width - 1])
    sizes = np.bincount(code, minlength=tuples.shape[1]).astype(np.int64)
    return Cells(code.astype(np.int32), np.ascontiguousarray(tuples), sizes)


def _dense(code: NDArray[np.int64], bound: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The sorted distinct codes, and each code's place among them."""
    if bound > 4 * len(code) + 1024:
        present, places = np.unique(code, return_inverse=True)
        return present, places.astype(np.int64)
    counts = np.bincount(code, minlength=bound)
    present = np.flatnonzero(counts)
    place = np.zeros(bound, np.int64)
    place[present] = np.arange(len(present))
    return present.astype(np.int64), place[code]


def adjusted_rand(truth: Labels, labels: Labels) -> float:
    """1 for the same partition, about 0 for a random one."""
    both, rows, columns = _table(truth, labels)
    count = float(both.sum())
    pairs = [float((sizes * (sizes - 1.0)).sum() / 2) for sizes in (both, rows, columns)]
    expected = pairs[1] * pairs[2] / (count * (count - 1) / 2)
    largest = (pairs[1] + pairs[2]) / 2
    return 1.0 if largest == expected else (pairs[0] - expected) / (largest - expected)


def mutual_information(truth: Labels, labels: Labels) -> float:
    """Normalised by the mean of both entropies: 1 for the same partition, 0 for independent ones."""
    both, rows, columns = _table(truth, labels)
    joint, first, second = (_entropy(sizes) for sizes in (both, rows, columns))
    return 1.0 if first + second == 0 else max(0.0, 2 * (first + second - joint) / (first + second))


def _table(truth: Labels, labels: Labels) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sizes of the cells and of both partitions' clusters; noise counts as a cluster."""
    cells = cells_of([truth, labels])
    rows, columns = (np.bincount(of_cell + 1, weights=cells.sizes) for of_cell in cells.labels)
    return cells.sizes.astype(np.float64), rows, columns


def _entropy(sizes: np.ndarray) -> float:
    shares = sizes[sizes > 0] / sizes.sum()
    return float(-(shares * np.log(shares)).sum())
