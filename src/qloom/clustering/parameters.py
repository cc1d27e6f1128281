"""The parameters of the program, checked before anything runs, and the parameters that each iteration draws.

Draws come from ranges and a seed, so that they can be recorded and redone, and they spread out: k runs through a
shuffled range before it repeats, and eps follows a golden-ratio sequence, so that a few iterations already cover the
ranges. An iteration's draw depends on the seed and its number alone, so that the next iteration's clusterings can
start before this one has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from qloom.clustering.data import Data, Points, blobs, load
from qloom.clustering.qubo import PENALTIES, WEIGHTS
from qloom.errors import InputError

METHODS = ("kmeans", "dbscan", "single", "ward", "hdbscan")
GOLDEN = (5**0.5 - 1) / 2
K_DISTANCE_SAMPLE = 20_000
WHOLE = ("iterations", "k_min", "k_max", "linkage_k", "min_pts", "shots", "exact_limit", "sample", "threads")
REAL = ("threshold", "quantum_s", "eps_min", "eps_max")
TRUE_OR_FALSE = ("score", "gap", "speculate")
PLOTS = (None, "", "png", "svg")


@dataclass(frozen=True)
class Ranges:
    """What parameters are drawn from; the defaults are the published ones, but for eps, which is derived."""

    methods: tuple[str, ...] = ("kmeans", "dbscan", "single")
    k: tuple[int, int] = (4, 10)
    linkage_k: int = 4  # 0: drawn like the k of k-means
    min_pts: int = 10
    eps: tuple[float, float] | None = None

    def check(self, points: int) -> Ranges:
        """These ranges, if they make sense for this many points."""
        for method in self.methods:
            if method not in METHODS:
                raise InputError(f"unknown clustering method {method!r}", hint=", ".join(METHODS))
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
    from qloom.clustering.kdtrees import kth_distances

    every = -(-len(points) // K_DISTANCE_SAMPLE)
    for among in (points, np.unique(points, axis=0)):  # the second if so many points are equal that distances vanish
        k = min(min_pts, len(among))
        distances = kth_distances(among, among[::every], k)
        low, high = (float(value) for value in np.quantile(distances, [0.9, 0.999]))
        if low > 0:
            break
    return low, max(low, high)


def checked_points(values: Mapping[str, Any]) -> Data:
    """The points to cluster, if all parameters of the program (by their names) are sound."""
    _require_extra(bool(values["plot"]))
    _require_numbers(values)
    if not all(isinstance(values[name], bool) for name in TRUE_OR_FALSE):
        raise InputError("score, gap and speculate are true or false")
    points = _points(values["data"], values["blobs"], values["label"])
    _require_choices(values)
    return points


def _require_extra(plot: bool) -> None:
    """Raise now what workers, or the end of a run, would find only later."""
    needed = ("numba", "llvmlite", "quitefastmst", "scipy", *(("matplotlib",) if plot else ()))
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise InputError(f"{', '.join(missing)}: not installed", hint='pip install "qloom[clustering]"')


def _require_numbers(values: Mapping[str, Any]) -> None:
    """Raises for the parameter, as typed on the command line, that is not a number."""
    for name in WHOLE:
        if isinstance(values[name], bool) or not isinstance(values[name], int):
            raise InputError(f"{name} must be a whole number, not {values[name]!r}", hint=f"--set {name}=4")
    for name in REAL:
        value = values[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"{name} must be a number, not {value!r}", hint=f"--set {name}=0.5")


def _points(data: Any, count: Any, label: str | int | None) -> Data:
    if (data is None) == (count is None):
        raise InputError("one of data and blobs is needed", hint="--set data=points.csv or --set blobs=80000")
    return blobs(count) if count is not None else load(str(data), label)


def _require_choices(values: Mapping[str, Any]) -> None:
    weights, penalty, plot = values["weights"], values["penalty"], values["plot"]
    if values["iterations"] < 1 or values["shots"] < 1:
        raise InputError("iterations and shots must be at least 1")
    if weights not in WEIGHTS:
        raise InputError(f"unknown weights {weights!r}", hint=" or ".join(WEIGHTS))
    if penalty is not None and penalty not in PENALTIES:
        raise InputError(f"unknown penalty {penalty!r}", hint=" or ".join(PENALTIES))
    if plot not in PLOTS:
        raise InputError(f"plot must be png, svg or empty, not {plot!r}")
    if (values["eps_min"] is None) != (values["eps_max"] is None):
        raise InputError("eps_min and eps_max belong together", hint="give both or none")
