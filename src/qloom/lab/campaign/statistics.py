"""Mean, standard deviation and 95 % interval of a few repeats (Student's t)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# The 97.5 % quantile of Student's t for 1, 2, ... degrees of freedom; beyond 30 the last one, which is safe.
T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class RepeatStatistics:
    """What some repeats have in common: `ci95` is half the width of the interval around the mean."""

    mean: float
    sd: float
    ci95: float
    n: int


def spread_of(values: Sequence[float]) -> RepeatStatistics:
    """The figures of some repeats; of a single one nothing is known but its value."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return RepeatStatistics(mean, 0.0, 0.0, 1)
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    return RepeatStatistics(mean, sd, T_975[min(n - 1, len(T_975)) - 1] * sd / math.sqrt(n), n)
