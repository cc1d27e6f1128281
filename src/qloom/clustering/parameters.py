"""Which parameters each iteration tries: drawn from ranges, from a seed, so that they can be recorded and redone.

Draws spread out: k runs through a shuffled range before it repeats, and eps follows a golden-ratio sequence, so
that a few iterations already cover the ranges. An iteration's draw depends on the seed and its number alone:
that is what lets the next iteration's clusterings start before this one has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qloom.clustering.data import Points
from qloom.errors import InputError

METHODS = ("kmeans", "dbscan", "single", "ward", "hdbscan")
GOLDEN = (5**0.5 - 1) / 2
K_DISTANCE_SAMPLE = 20_000


@dataclass(frozen=True)
class Ranges:
    """What parameters are drawn from; the defaults are the published ones, but for eps, which is derived."""

    methods: tuple[str, ...] = ("kmeans", "dbscan", "single")
    k: tuple[int, int] = (4, 10)
    linkage_k: int = 4  # 0: drawn like the k of k-means
    min_pts: int = 10
    eps: tuple[float, float] | None = None

    def check(self, points: int) -> Ranges:
        """These ranges, if they make sense for so many points."""
        for method in self.methods:
            if method not in METHODS:
                raise InputError(f"there is no clustering method {method!r}", hint=", ".join(METHODS))
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise InputError("each clustering method can be named once, and at least one is needed")
        if not 2 <= self.k[0] <= self.k[1]:
            raise InputError(f"the range of k must rise and start at 2 or more, not {self.k[0]}..{self.k[1]}")
        largest = max(self.k[1], self.linkage_k)
        if largest > points:
            raise InputError(f"k = {largest} clusters cannot be made of {points} points")
        if self.linkage_k == 1 or self.linkage_k < 0:
            raise InputError(f"linkage_k must be 0 (drawn) or at least 2, not {self.linkage_k}")
        if self.min_pts < 1:
            raise InputError(f"min_pts must be at least 1, not {self.min_pts}")
        if self.eps is not None and not 0 < self.eps[0] <= self.eps[1] < np.inf:
            raise InputError(f"the range of eps must be positive and rise, not {self.eps[0]}..{self.eps[1]}")
        return self


def draw(ranges: Ranges, eps: tuple[float, float], seed: int, iteration: int) -> list[dict[str, Any]]:
    """One iteration's clusterings: a method and its parameters each."""
    start = np.random.default_rng([seed, 0])
    order = start.permutation(np.arange(ranges.k[0], ranges.k[1] + 1))
    k = int(order[iteration % len(order)])
    share = (float(start.random()) + iteration * GOLDEN) % 1.0
    radius = eps[0] * (eps[1] / eps[0]) ** share
    linkage_k = ranges.linkage_k or int(order[(iteration + len(order) // 2) % len(order)])
    parameters: dict[str, dict[str, Any]] = {
        "kmeans": {"k": k, "seed": int(np.random.default_rng([seed, 1, iteration]).integers(2**31))},
        "dbscan": {"eps": float(f"{radius:.6g}"), "min_pts": ranges.min_pts},
        "single": {"k": linkage_k},
        "ward": {"k": k},
        "hdbscan": {"min_size": ranges.min_pts * (1 + iteration), "min_pts": ranges.min_pts},
    }
    return [{"method": method, **parameters[method]} for method in ranges.methods]


def eps_range(points: Points, min_pts: int) -> tuple[float, float]:
    """Where DBSCAN's eps makes sense: from the 90th to the 99.9th percentile of the distance to the k-th neighbour.

    Below, much of the data is noise; above, nearly every point is a core point and clusters only melt together.
    """
    from qloom.clustering.neighbours import kth_distances

    every = -(-len(points) // K_DISTANCE_SAMPLE)
    for among in (points, np.unique(points, axis=0)):  # the second if so many points are equal that distances vanish
        k = min(min_pts, len(among))
        distances = kth_distances(among, among[::every], k)
        low, high = (float(value) for value in np.quantile(distances, [0.9, 0.999]))
        if low > 0:
            break
    return low, max(low, high)
