"""Disjoint sets as a forest in one array: each entry names its parent, roots name themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.compiled import compiled


@compiled
def find(parent: NDArray[Any], i: int) -> int:
    """The root of a set; the path to it is halved on the way."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@compiled
def join(parent: NDArray[Any], i: int, j: int) -> None:
    """Make one set of two; the smaller root stays, so the outcome does not depend on the order."""
    a = find(parent, i)
    b = find(parent, j)
    if a < b:
        parent[b] = a
    else:
        parent[a] = b


def numbered(names: NDArray[Any]) -> NDArray[np.int32]:
    """Any integer names as 0, 1, 2... in the order in which they first appear."""
    present, first, places = np.unique(names, return_index=True, return_inverse=True)
    rank = np.empty(len(present), np.int32)
    rank[np.argsort(first)] = np.arange(len(present), dtype=np.int32)
    return rank[places.reshape(-1)]
