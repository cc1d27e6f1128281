"""Runs the cells of a campaign: those that are not done, virtual ones again to the byte, and all of them for a fit.

The fit adjusts the calibrated values to the published table: damped least squares (Levenberg and Marquardt) over
relative errors in per cent, or in published standard deviations where those are larger. Each value is drawn a little
towards its prior, so that two values that only show as a sum do not drift apart. No randomness: the same table gives
the same values.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.errors import InputError, JobError, JournalError
from qloom.journal import home
from qloom.journal.event import Event
from qloom.journal.file import FILE_NAME
from qloom.lab.campaign.cells import Cell, expand, published_for
from qloom.lab.campaign.figures import counted, figures_of
from qloom.lab.campaign.manifest import commit, manifest_of
from qloom.lab.campaign.model import Campaign, Label
from qloom.lab.campaign.plans import Conditions, LoadPlan, plan_for
from qloom.lab.campaign.read import resolve
from qloom.lab.campaign.store import CampaignRun, CampaignStore
from qloom.runs.runner import Outcome, Plan, execute

Piece = tuple[Cell, int, Plan | LoadPlan]  # a cell, which repeat of it, and what is run for it
OnProgress = Callable[[int, int, str], None]  # how many are done, of how many, and which one is next
STEP_S = 0.25  # larger than what rounding moves, smaller than what changes the order of events
PRIOR_WEIGHT = 0.1
ROUNDS, TRIALS = 8, 4
DECIMALS = 2
Vector = NDArray[np.float64]


def pieces_of(asked: CampaignRun) -> list[Piece]:
    """All runs of a campaign, every one of them checked."""
    campaign = asked.campaign()
    cells = expand(campaign, asked.name)
    return [
        (cell, repeat, plan_for(cell, campaign.seed, repeat, asked.conditions))
        for repeat in range(campaign.repeats)
        for cell in cells
    ]


def carry_out(
    asked: CampaignRun, progress: OnProgress, listener: Callable[[Event], None] | None = None
) -> CampaignStore:
    """Run what is not done; a cell that fails is reported at the end, and tried again the next time."""
    pieces = pieces_of(asked)
    store = CampaignStore(asked.directory)
    store.begin(asked, manifest_of(asked))
    code = commit()
    failed: list[str] = []
    for place, (cell, repeat, plan) in enumerate(pieces):
        with store.claim(cell.id, repeat) as is_mine:
            if not is_mine:
                continue
            progress(place, len(pieces), f"{cell.id}, repeat {repeat + 1}")
            with home.part_of(asked.name):
                outcome = _run(plan, listener)
            if outcome.errors:
                failed.append(f"{cell.id}, repeat {repeat + 1} ({outcome.run}): {outcome.errors[0]}")
            else:
                store.add(cell.id, repeat, outcome.run, code)
    progress(len(pieces), len(pieces), "")
    if failed:
        raise JobError(f"{len(failed)} of {len(pieces)} cells failed; {failed[0]}", hint="run it again to retry them")
    if others := len(pieces) - len(store.done()):
        raise JobError(f"{others} of {len(pieces)} cells are being run by another process", hint="wait for it")
    return store


def verify(store: CampaignStore, progress: OnProgress) -> tuple[int, int, list[str]]:
    """Run the virtual cells again, elsewhere; how many were compared, how many are not virtual, and which differ."""
    asked = store.asked()
    pieces = pieces_of(asked)
    done = store.done()
    virtual = [piece for piece in pieces if piece[2].world == "virtual"]
    different = []
    for place, (cell, repeat, plan) in enumerate(virtual):
        progress(place, len(virtual), f"{cell.id}, repeat {repeat + 1}")
        run = done.get((cell.id, repeat))
        if run is None:
            raise JournalError(
                f"{cell.id}, repeat {repeat + 1} is not done", hint="qloom campaign run goes on with it"
            )
        before = (home.find_run(run) / FILE_NAME).read_bytes()
        if _journal_again(plan) != before:
            different.append(f"{cell.id}, repeat {repeat + 1} ({run})")
    return len(virtual), len(pieces) - len(virtual), different


def _run(plan: Plan | LoadPlan, listener: Callable[[Event], None] | None = None) -> Outcome:
    return plan.execute() if isinstance(plan, LoadPlan) else execute(plan, listener=listener)


def _journal_again(plan: Plan | LoadPlan) -> bytes:
    with _another_home():
        outcome = _run(plan)
        return (home.runs_directory() / outcome.run / FILE_NAME).read_bytes()


@contextmanager
def _another_home() -> Iterator[None]:
    """A place for runs that are thrown away."""
    before = os.environ.get("QLOOM_HOME")
    with tempfile.TemporaryDirectory(prefix="qloom-verify-") as place:
        os.environ["QLOOM_HOME"] = place
        try:
            yield
        finally:
            if before is None:
                del os.environ["QLOOM_HOME"]
            else:
                os.environ["QLOOM_HOME"] = before


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
            shared = [figure for figure in campaign.figures if figure in known]
            errors += [_weighed(counted(got, figure), figure, known) for figure in shared]
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
