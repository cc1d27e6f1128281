"""Repeating a run under load with other seeds, until the mean turnaround is known well enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from statistics import fmean
from typing import Any, TypeVar

from qloom.errors import InputError
from qloom.lab.load.intervals import Mean, mean_of
from qloom.lab.load.metrics import LoadMetrics
from qloom.lab.load.run import Load, LoadResult, run_load

FEWEST = 3
T = TypeVar("T")


def until_known(
    load_of: Callable[[int], Load],
    within: float,
    most_runs: int,
    progress: Callable[[int, float], None] = lambda runs, relative: None,
) -> tuple[list[LoadResult], LoadMetrics]:
    """Run seeds 0, 1, 2, ... until the 95 % interval of the mean turnaround is within so much of it."""
    if not 0 < within < float("inf") or most_runs < FEWEST:
        raise InputError(f"--until-ci needs a part above 0 and at least {FEWEST} runs", hint="--until-ci 2%")
    results: list[LoadResult] = []
    while len(results) < most_runs:
        results.append(run_load(load_of(len(results))))
        known = mean_of([result.metrics.all.turnaround_s.value for result in results])
        progress(len(results), known.relative)
        if len(results) >= FEWEST and known.relative <= within:
            break
    return results, combined([result.metrics for result in results])


def combined(metrics: list[T]) -> T:
    """The mean of each figure over runs; a figure that has an interval gets the one over the runs."""
    values = {}
    for item in fields(metrics[0]):  # type: ignore[arg-type]
        column: list[Any] = [getattr(one, item.name) for one in metrics]
        if is_dataclass(column[0]):
            values[item.name] = combined(column)
        elif isinstance(column[0], Mean):
            values[item.name] = mean_of([one.value for one in column if not math.isnan(one.value)])
        elif column[0] is None:
            values[item.name] = None
        elif isinstance(column[0], int):
            values[item.name] = sum(column)
        else:
            values[item.name] = fmean(column)
    return type(metrics[0])(**values)
