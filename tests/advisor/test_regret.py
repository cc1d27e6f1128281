"""How good the choices are, on a few of the scenarios of `benchmarks/advisor.py`."""

from __future__ import annotations

from statistics import fmean

import pytest
from benchmarks.advisor import outcome_of

from qloom.strategies import STRATEGIES

SEED = 0


@pytest.mark.slow
def test_choices_are_near_the_best_and_better_than_any_fixed_strategy():
    outcomes = [outcome_of(number, SEED, futures=3, samples=6) for number in range(10)]
    regrets = [outcome.regret(outcome.chosen) for outcome in outcomes]
    fixed = {name: fmean(outcome.regret(name) for outcome in outcomes) for name in STRATEGIES}
    assert fmean(regrets) <= 0.05, f"seed {SEED}: {regrets}"
    assert max(regrets) <= 0.25, f"seed {SEED}: {regrets}"
    assert fmean(regrets) < min(fixed.values())
