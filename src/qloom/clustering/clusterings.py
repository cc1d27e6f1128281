"""The clusterings of every iteration as tasks; what all iterations share is computed once, before the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qloom.clustering import tasks
from qloom.clustering.parameters import Ranges, draw
from qloom.model import Task, call

if TYPE_CHECKING:
    from qloom.job.job import Job
    from qloom.shared import Shared

# Seconds per point on one core; ward grows with the square of the points.
EXPECTED_S = {"kmeans": 2e-6, "dbscan": 1e-6, "single": 1e-7, "ward": 1e-7, "hdbscan": 3e-5}
TREE_S = 2.5e-6
WARD_PAIR_S = 4e-9
LINKAGES = ("single", "ward")


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
        work = call(tasks.clustering, self.points, parameters, self.trees.get(method))
        return work.needs(expected_s=EXPECTED_S[method] * self.count)


async def prepare(job: Job, points: Shared, count: int, ranges: Ranges) -> Clusterings:
    """Compute what does not change between iterations: the trees, and the range of eps if none was given."""
    linkages = [method for method in ranges.methods if method in LINKAGES]
    expected_s = {"single": TREE_S * count, "ward": WARD_PAIR_S * count * count}
    work = [call(tasks.hierarchy, points, name).needs(expected_s=expected_s[name]) for name in linkages]
    derive = ranges.eps is None and "dbscan" in ranges.methods
    if derive:
        work.append(call(tasks.find_eps_range, points, ranges.min_pts).needs(expected_s=TREE_S * count))
    done = await job.classical(*work) if work else []
    eps = tuple(done.pop()) if derive else ranges.eps or (1.0, 1.0)
    trees = {name: job.share(tree) for name, tree in zip(linkages, done, strict=True)}
    return Clusterings(points, count, ranges, eps, trees, job.seed)
