"""From a device's answer to a partition: overlaps are repaired, free clusters added, every point is covered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qloom.clustering.data import Points
from qloom.clustering.overlap import NOISE, Labels
from qloom.clustering.qubo import Graph


@dataclass(frozen=True)
class Choice:
    """Clusters that do not overlap, and what had to be changed in the answer to get there."""

    chosen: tuple[int, ...]
    dropped: tuple[int, ...]  # were in the answer, but overlapped with heavier ones
    added: tuple[int, ...]  # were not in it, though nothing stood against them


def repair(graph: Graph, values: Mapping[Any, int]) -> Choice:
    """Keep the answer's clusters, heaviest first, where they do not overlap; then add what still fits.

    Both steps lower the energy or leave it, and an answer that is a good optimum passes unchanged.
    """
    heaviest_first = sorted(range(len(graph.clusters)), key=lambda i: (-graph.weights[i], i))
    wanted = [i for i in heaviest_first if values.get(graph.clusters[i].name, 0) == 1]
    others = [i for i in heaviest_first if i not in set(wanted) and graph.weights[i] > 0]
    taken: set[int] = set()
    kept: dict[str, list[int]] = {"wanted": [], "others": []}
    for kind, indices in (("wanted", wanted), ("others", others)):
        for i in indices:
            if taken.isdisjoint(graph.clusters[i].cells):
                taken.update(graph.clusters[i].cells)
                kept[kind].append(i)
    dropped = tuple(sorted(set(wanted) - set(kept["wanted"])))
    return Choice(tuple(sorted(kept["wanted"] + kept["others"])), dropped, tuple(sorted(kept["others"])))


def cover(points: Points, labels: Labels) -> Labels:
    """Give each point without a cluster the label of the nearest point that has one."""
    covered = labels != NOISE
    if covered.all() or not covered.any():
        return labels
    from qloom.clustering.neighbours import nearest

    complete = labels.copy()
    complete[~covered] = labels[covered][nearest(points[covered], points[~covered])]
    return complete


def compact(labels: Labels) -> Labels:
    """The same labels in the smallest integer type, since they travel between nodes and into the journal."""
    largest = int(labels.max(initial=0))
    return labels.astype(np.min_scalar_type(-1 - largest))
