"""From a device's answer to a partition, and how far the answer is from the exact optimum.

Overlaps are repaired, free clusters added, and every point is covered. For the optimum, each cell can be covered
once: that is one row of an integer program, and a much tighter one than a row for each overlapping pair. HiGHS, in
scipy, solves hundreds of clusters in milliseconds. A driver that only needs the gap of a few dozen clusters searches
itself, since scipy takes longer to import than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qloom.clustering.data import Points
from qloom.clustering.overlap import NOISE, Labels
from qloom.clustering.qubo import Graph
from qloom.errors import JobError

TIME_LIMIT_S = 60.0
SEARCH_LIMIT = 20_000  # steps, about a tenth of a second; graphs of up to 100 clusters have taken less than half


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
    from qloom.clustering.kdtrees import nearest

    complete = labels.copy()
    complete[~covered] = labels[covered][nearest(points[covered], points[~covered])]
    return complete


def compact(labels: Labels) -> Labels:
    """The same labels in the smallest integer type, since they travel between nodes and into the journal."""
    largest = int(labels.max(initial=0))
    return labels.astype(np.min_scalar_type(-1 - largest))


def optimum(graph: Graph) -> list[int]:
    """A heaviest choice of clusters without overlaps."""
    return heaviest(graph.weights, graph.cliques)


def optimum_by_search(graph: Graph, cell_sizes: Sequence[int]) -> list[int]:
    """The same by branch and bound, without scipy unless the search takes too long.

    A cluster's weight is spread over its cells by their size. No choice is worth more than each cell's best share.
    """
    cells = [cluster.cells for cluster in graph.clusters]
    density = [weight / sum(cell_sizes[c] for c in own) for weight, own in zip(graph.weights, cells, strict=True)]
    members = [frozenset(own) for own in cells]
    best_weight = 0.0
    best: list[int] = []
    heaviest_first = sorted(range(len(cells)), key=lambda i: -graph.weights[i])
    waiting: list[tuple[float, list[int], list[int]]] = [(0.0, [], heaviest_first)]
    for _ in range(SEARCH_LIMIT):
        if not waiting:
            return sorted(best)
        weight, chosen, left = waiting.pop()
        if weight > best_weight:
            best_weight, best = weight, chosen
        shares: dict[int, float] = {}
        for i in left:
            for cell in cells[i]:
                shares[cell] = max(shares.get(cell, 0.0), density[i])
        if weight + sum(share * cell_sizes[cell] for cell, share in shares.items()) <= best_weight + 1e-9:
            continue
        first, rest = left[0], left[1:]
        waiting.append((weight, chosen, rest))
        free = [i for i in rest if members[first].isdisjoint(members[i])]
        waiting.append((weight + graph.weights[first], [*chosen, first], free))
    return optimum(graph)


def heaviest(weights: Sequence[float], cliques: Sequence[Sequence[int]]) -> list[int]:
    """A heaviest set of indices with at most one of each clique."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    if not weights:
        return []
    constraints = []
    if cliques:
        rows = np.repeat(np.arange(len(cliques)), [len(clique) for clique in cliques])
        columns = np.concatenate([np.asarray(clique) for clique in cliques])
        once = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(cliques), len(weights)))
        constraints.append(LinearConstraint(once, ub=np.ones(len(cliques))))
    solved = milp(
        -np.asarray(weights),
        integrality=np.ones(len(weights)),
        bounds=Bounds(0, 1),
        constraints=constraints,
        options={"mip_rel_gap": 0.0, "time_limit": TIME_LIMIT_S},
    )
    if solved.status != 0:
        raise JobError(f"no proven optimum of {len(weights)} clusters: {solved.message}")
    return [int(i) for i in np.flatnonzero(solved.x > 0.5)]


def gap(graph: Graph, chosen: list[int], best: list[int]) -> float:
    """How much of the best possible weight a choice misses: 0 is optimal, 1 is nothing."""
    possible = graph.energy(best)
    return 0.0 if possible == 0 else round(max(0.0, 1 - graph.energy(chosen) / possible), 6)
