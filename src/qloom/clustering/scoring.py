"""How silhouettes are computed for a data set: of all points up to a size, of a stated sample of them beyond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.errors import InputError
from qloom.model import Task

PAIR_S = 1e-10  # seconds per coordinate of a pair of points, on one core, in single precision
PRECISIONS = {"single": 1.0, "double": 3.4}  # and how much longer each precision takes


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
        """What to tell the user about the score."""
        return {"silhouette": "exact" if self.exact else "sample", "scored_points": self.scored}
