"""The classical work of the program as tasks, and which of them an iteration needs.

Heavy imports wait until a worker runs a task. What all iterations share (trees, the range of eps) is computed once,
before the first. Silhouettes are of all points up to a size, and of a stated sample of them beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.answer import compact, cover
from qloom.clustering.data import Points
from qloom.clustering.overlap import NOISE, Labels
from qloom.clustering.parameters import Ranges, draw, eps_range
from qloom.errors import InputError
from qloom.model import Task, call, task

if TYPE_CHECKING:
    from qloom.job.job import Job
    from qloom.shared import Shared

# Seconds per point on one core; ward grows with the square of the points.
EXPECTED_S = {"kmeans": 2e-6, "dbscan": 1e-6, "single": 1e-7, "ward": 1e-7, "hdbscan": 3e-5}
TREE_S = 2.5e-6
WARD_PAIR_S = 4e-9
LINKAGES = ("single", "ward")
PAIR_S = 1e-10  # seconds per coordinate of a pair of points, on one core, in single precision
PRECISIONS = {"single": 1.0, "double": 3.4}  # and how much longer each precision takes


@task
def find_eps_range(points: Points, min_pts: int) -> tuple[float, float]:
    """The range that DBSCAN's eps is drawn from; the same for all iterations."""
    return eps_range(points, min_pts)


@task
def hierarchy(points: Points, linkage: str) -> NDArray[np.int32]:
    """The tree of a hierarchical clustering; the same for all iterations, whatever their k."""
    from qloom.clustering.linkage import tree

    return tree(points, linkage)


@task
def clustering(points: Points, parameters: dict[str, Any], joins: NDArray[np.int32] | None = None) -> Labels:
    """The labels of one clustering; a hierarchical one only cuts its tree."""
    return compact(_labels(points, parameters, joins))


def _labels(points: Points, parameters: dict[str, Any], joins: NDArray[np.int32] | None) -> Labels:
    given = dict(parameters)
    method = given.pop("method")
    if method == "kmeans":
        from qloom.clustering.kmeans import kmeans

        return kmeans(points, **given)
    if method == "dbscan":
        from qloom.clustering.dbscan import dbscan

        return dbscan(points, **given)
    if method == "hdbscan":
        from qloom.clustering.hdbscan import hdbscan

        return hdbscan(points, **given)
    if method in ("single", "ward"):
        from qloom.clustering.linkage import cut, tree

        return cut(tree(points, method) if joins is None else joins, **given)
    raise InputError(f"unknown clustering method {method!r}")


@task
def cluster_silhouettes(
    points: Points, rows: NDArray[np.int64] | None, precision: str, threads: int, *labelings: Labels
) -> list[NDArray[np.float64]]:
    """Each cluster's sum of silhouettes in its own clustering (over the sampled rows, if any)."""
    from qloom.clustering.silhouette import silhouette_samples

    values = silhouette_samples(points, list(labelings), rows=rows, precision=precision, threads=threads)
    sums = []
    for labels, of_points in zip(labelings, values, strict=True):
        seen = labels if rows is None else labels[rows]
        inside = seen != NOISE
        count = int(labels.max(initial=NOISE)) + 1
        sums.append(np.bincount(seen[inside], of_points[inside], count).astype(np.float64))
    return sums


@task
def partition(
    points: Points, labels: Labels, rows: NDArray[np.int64] | None, precision: str, threads: int, score: bool
) -> tuple[Labels, float | None]:
    """Every point's label, and the mean silhouette; None if it was not asked for, or there is only one cluster."""
    complete = compact(cover(points, labels))
    if not score or int(complete.max(initial=0)) < 1:
        return complete, None
    from qloom.clustering.silhouette import silhouette_samples

    values = silhouette_samples(points, [complete], rows=rows, precision=precision, threads=threads)
    return complete, round(float(values.mean()), 6)


@dataclass(frozen=True)
class Clusterings:
    """Draws the clusterings of an iteration and describes them as tasks."""

    points: Shared
    count: int
    ranges: Ranges
    eps: tuple[float, float]
    trees: dict[str, Shared]
    seed: int

    def draw(self, iteration: int) -> dict[str, dict[str, Any]]:
        """The parameters of each clustering of an iteration, under a name that is equal for equal ones."""
        drawn = draw(self.ranges, self.eps, self.seed, iteration)
        return {str(parameters): parameters for parameters in drawn}

    def task(self, parameters: dict[str, Any]) -> Task:
        """One clustering."""
        method = parameters["method"]
        work = call(clustering, self.points, parameters, self.trees.get(method))
        return work.needs(expected_s=EXPECTED_S[method] * self.count)


async def prepare(job: Job, points: Shared, count: int, ranges: Ranges) -> Clusterings:
    """Compute what does not change between iterations: the trees, and the range of eps if none was given."""
    linkages = [method for method in ranges.methods if method in LINKAGES]
    expected_s = {"single": TREE_S * count, "ward": WARD_PAIR_S * count * count}
    work = [call(hierarchy, points, name).needs(expected_s=expected_s[name]) for name in linkages]
    derive = ranges.eps is None and "dbscan" in ranges.methods
    if derive:
        work.append(call(find_eps_range, points, ranges.min_pts).needs(expected_s=TREE_S * count))
    done = await job.classical(*work) if work else []
    eps = tuple(done.pop()) if derive else ranges.eps or (1.0, 1.0)
    trees = {name: job.share(tree) for name, tree in zip(linkages, done, strict=True)}
    return Clusterings(points, count, ranges, eps, trees, job.seed)


@dataclass(frozen=True)
class Scoring:
    """Each sampled point's silhouette is exact, against all points; only their mean is an estimate."""

    points: int
    dimensions: int
    exact_limit: int
    sample: int
    precision: str
    threads: int
    seed: int

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise InputError(f"precision must be single or double, not {self.precision!r}")
        if self.threads < 1 or self.sample < 2:
            raise InputError("threads must be at least 1, sample at least 2")

    @property
    def exact(self) -> bool:
        """Whether all points are scored."""
        return self.points <= max(self.exact_limit, self.sample)

    @property
    def scored(self) -> int:
        """How many points' silhouettes are computed."""
        return self.points if self.exact else self.sample

    def rows(self) -> NDArray[np.int64] | None:
        """The sampled points, or None for all."""
        if self.exact:
            return None
        drawn = np.random.default_rng([self.seed, 2]).choice(self.points, self.sample, replace=False)
        return np.sort(drawn).astype(np.int64)

    def needs(self, work: Task) -> Task:
        """A task with what its silhouettes take."""
        pairs_s = PAIR_S * PRECISIONS[self.precision] * self.dimensions * self.points * self.scored
        return work.needs(cpus=self.threads, expected_s=pairs_s / self.threads)

    def report(self) -> dict[str, Any]:
        """What the user should know about the score."""
        return {"silhouette": "exact" if self.exact else "sample", "scored_points": self.scored}
