"""The exact optimum, to say how far a device's answer is from it.

Each cell can be covered once: that is one row of an integer program, and a much tighter one than a row for each
overlapping pair. HiGHS, in scipy, solves hundreds of clusters in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qloom.clustering.qubo import Graph
from qloom.errors import JobError

TIME_LIMIT_S = 60.0


def optimum(graph: Graph) -> list[int]:
    """A heaviest choice of clusters without overlaps."""
    return heaviest(graph.weights, graph.cliques)


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
