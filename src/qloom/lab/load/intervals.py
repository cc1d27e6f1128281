"""Means with 95 % intervals: waits of neighbouring jobs are alike, so means of batches are compared, not jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

BATCHES = 20
CONFIDENCE = 0.95


class Mean(NamedTuple):
    """A mean and half the width of its 95 % interval; nan if there is too little to tell."""

    value: float
    half_width: float

    @property
    def relative(self) -> float:
        """The half-width in parts of the mean."""
        return self.half_width / abs(self.value) if self.value else 0.0


def mean_of(values: Sequence[float]) -> Mean:
    """The mean of independent values."""
    if not values:
        return Mean(math.nan, math.nan)
    if len(values) == 1:
        return Mean(values[0], math.nan)
    return Mean(fmean(values), student_t(len(values) - 1) * stdev(values) / math.sqrt(len(values)))


def batch_mean(values: Sequence[float], batches: int = BATCHES) -> Mean:
    """The mean of values in the order of time, its interval from the means of batches."""
    if len(values) < 2 * batches:
        return Mean(fmean(values) if values else math.nan, math.nan)
    size = len(values) / batches
    means = [fmean(values[round(place * size) : round((place + 1) * size)]) for place in range(batches)]
    return Mean(fmean(values), mean_of(means).half_width)


def student_t(freedom: int) -> float:
    """The 97.5 % point of Student's t, by its expansion around the normal one (Hill 1970: exact for 1 and 2)."""
    if freedom == 1:
        return math.tan(math.pi * CONFIDENCE / 2)
    if freedom == 2:
        return CONFIDENCE * math.sqrt(2 / (1 - CONFIDENCE**2))
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(sum(term / freedom**power for power, term in enumerate(terms)))


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which a part of all values lies; nan if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)] if ordered else math.nan
