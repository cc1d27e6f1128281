"""Fits the calibrated values of a campaign to its published table: the cells are run, again and again.

A damped least-squares fit (Levenberg and Marquardt) over relative errors in per cent, or in published standard
deviations where those are larger. Each value is drawn a little towards its prior, so that two values that only show
as a sum do not drift apart. No randomness: the same table gives the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.errors import InputError
from qloom.lab.campaign.cells import expand, published_for
from qloom.lab.campaign.figures import counted, figures_of
from qloom.lab.campaign.loadplan import LoadPlan
from qloom.lab.campaign.model import Campaign, Label
from qloom.lab.campaign.plans import Conditions, plan_for
from qloom.lab.campaign.read import resolve
from qloom.runs.runner import execute

STEP_S = 0.25  # larger than what rounding moves, smaller than what changes the order of events
PRIOR_WEIGHT = 0.1
ROUNDS, TRIALS = 8, 4
DECIMALS = 2

Vector = NDArray[np.float64]


def fit(raw: Mapping[str, Any], name: str, part: str) -> dict[str, float]:
    """New values for what has a prior, from the rows of the published table that belong to `part` ("all": every)."""
    campaign = resolve(raw, name)
    if campaign.published is None:
        raise InputError(f"campaign {name} has no published table to be calibrated to")
    if part != "all" and part not in campaign.calibrate:
        known = ", ".join(["all", *campaign.calibrate])
        raise InputError(f"campaign {name} cannot be calibrated to {part!r}", hint=f"choose one of {known}")
    wanted = campaign.calibrate.get(part, {})
    free = {key: value for key, value in campaign.calibrated.items() if value.prior is not None}
    if not free:
        raise InputError(f"campaign {name} has no value that a fit could change", hint="give one a prior")
    priors = np.array([value.prior for value in free.values()])
    spreads = np.array([value.spread for value in free.values()])

    def misfit(values: Vector) -> Vector:
        tried = resolve(raw, name, dict(zip(free, values.tolist(), strict=True)))
        return np.concatenate([_errors(tried, name, wanted), PRIOR_WEIGHT * (values - priors) / spreads])

    found = _least_squares(misfit, priors)
    return dict(zip(free, found.tolist(), strict=True))


def _errors(campaign: Campaign, name: str, wanted: Mapping[str, Label]) -> Vector:
    """The errors of all figures, in virtual time and without a journal on the disk."""
    errors = []
    for cell in expand(campaign, name):
        known = published_for(campaign, cell)
        if known and cell.matches(wanted):
            plan = plan_for(cell, campaign.seed, 0, Conditions(world="virtual"))
            if isinstance(plan, LoadPlan):
                raise InputError(f"campaign {name}: cells with a workload cannot be calibrated")
            got = figures_of(execute(plan, in_memory=True).events, campaign.quirks)
            told = [figure for figure in campaign.figures if figure in known]
            errors += [_weighed(counted(got, figure), figure, known) for figure in told]
    return np.array(errors)


def _weighed(got: float, figure: str, known: Mapping[str, float]) -> float:
    """The error of one figure in per cent; one that varied from run to run counts less."""
    percent = 100 / known[figure]
    return (got - known[figure]) * percent / max(1.0, known.get(f"{figure}_sd", 0.0) * percent)


def _least_squares(misfit: Callable[[Vector], Vector], start: Vector) -> Vector:
    values, errors, damping = start, misfit(start), 0.01
    for _ in range(ROUNDS):
        slopes = np.empty((len(errors), len(values)))
        for place in range(len(values)):
            moved = values.copy()
            moved[place] += STEP_S
            slopes[:, place] = (misfit(moved) - errors) / STEP_S
        curvature = slopes.T @ slopes
        for _ in range(TRIALS):
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -slopes.T @ errors)
            tried = np.maximum(np.round(values + step, DECIMALS), 0.0)
            trial = misfit(tried)
            if trial @ trial < errors @ errors - 1e-3:
                values, errors, damping = tried, trial, damping / 5
                break
            damping *= 5
        else:
            return values
    return values
