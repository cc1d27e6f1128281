"""Atoms in a plane for an overlap graph: near each other where clusters overlap, apart where they do not.

Neutral atoms block each other within one radius, so a graph fits on them only if it is a unit-disk graph.
To decide that is hard; so a proof of the contrary is looked for first, then a layout by descent from a few starts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.optimum import heaviest
from qloom.clustering.qubo import Graph
from qloom.errors import PayloadError

NEAR, FAR, CLOSEST = 1.0, 1.15, 0.5  # bounds on distances: overlapping pairs, other pairs, any pair
STARTS = 20
NEIGHBOURS = 5  # a disk can touch at most five others that do not touch each other


def embed(graph: Graph, seed: int = 0) -> NDArray[np.float64]:
    """Coordinates (clusters, 2) with overlapping pairs within NEAR and all others beyond FAR."""
    from scipy.optimize import minimize

    _refuse_star(graph)
    count = len(graph.clusters)
    first, second = np.triu_indices(count, 1)
    overlaps = set(graph.edges)
    joined = np.array([(int(a), int(b)) in overlaps for a, b in zip(first, second, strict=True)], bool)
    low = np.where(joined, CLOSEST, FAR) * 1.01
    high = np.where(joined, NEAR, np.inf) / 1.01
    random = np.random.default_rng(seed)
    worst = np.inf
    for _ in range(STARTS):
        start = random.normal(0, 0.6 * np.sqrt(count), 2 * count)
        found = minimize(_strain, start, (first, second, low, high), jac=True, method="L-BFGS-B",
                         options={"maxiter": 2000})  # fmt: skip
        if found.fun < 1e-9:
            coordinates: NDArray[np.float64] = found.x.reshape(count, 2)
            coordinates -= coordinates.mean(axis=0)
            return coordinates
        worst = min(worst, float(found.fun))
    raise PayloadError(
        f"no unit-disk layout of {count} clusters was found in {STARTS} tries (strain {worst:.2g} is left)",
        hint="use --to qaoa, or fewer clusterings",
    )


def _refuse_star(graph: Graph) -> None:
    around: list[list[int]] = [[] for _ in graph.clusters]
    for a, b in graph.edges:
        around[a].append(b)
        around[b].append(a)
    for cluster, others in enumerate(around):
        place = {other: i for i, other in enumerate(others)}
        pairs = [(place[a], place[b]) for a, b in graph.edges if a in place and b in place]
        apart = heaviest([1.0] * len(others), pairs) if len(others) > NEIGHBOURS else []
        if len(apart) > NEIGHBOURS:
            raise PayloadError(
                f"the overlap graph is no unit-disk graph: {graph.clusters[cluster].name} overlaps with {len(apart)} "
                f"clusters that do not overlap with each other, and at most {NEIGHBOURS} fit around an atom",
                hint="use --to qaoa",
            )


def _strain(
    flat: NDArray[Any], first: NDArray[Any], second: NDArray[Any], low: NDArray[Any], high: NDArray[Any]
) -> tuple[float, NDArray[Any]]:
    """Squares of how far pairs are out of bounds, and the gradient."""
    points = flat.reshape(-1, 2)
    apart = points[first] - points[second]
    distance = np.maximum(np.hypot(apart[:, 0], apart[:, 1]), 1e-12)
    out = np.maximum(distance - high, 0.0) - np.maximum(low - distance, 0.0)
    push = (2 * out / distance)[:, None] * apart
    gradient = np.zeros_like(points)
    np.add.at(gradient, first, push)
    np.add.at(gradient, second, -push)
    return float((out * out).sum()), gradient.ravel()
