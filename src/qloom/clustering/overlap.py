"""How clusterings of the same points overlap, from one pass over the points.

Points with the same label in every clustering form a *cell*. There are few cells, so every question about
overlaps is answered on them: which clusters share points, which are equal, how large they are.
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
