"""Random mixtures of synchronous and asynchronous jobs, payloads of every kind, several devices, faults and kills.

Nothing is lost, held or blocked. A failure names its seed; QLOOM_SEED is where seeds begin, QLOOM_EXAMPLES how many
there are.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("qiskit_aer", reason="NOT RUN: qiskit-aer is not installed (pip install 'qloom[qiskit]')")

import qloom
from qloom.errors import QloomError
from qloom.journal.file import FILE_NAME
from qloom.programs.load import from_function
from qloom.runs.plan import Plan
from qloom.testing.simulation import simulate
from qloom.worlds.virtual.world import InjectedFaults
from tests.golden import drawn
from tests.golden.drawn import Draw
from tests.simulation import any_program
from tests.simulation.any_program import awaited, draw_site, plain
from tests.simulation.test_liveness import require_nothing_again, require_sound

FIRST = int(os.environ.get("QLOOM_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("QLOOM_EXAMPLES", "12")))
LANES = 2


def draw_plans(seed: int, site: qloom.Site) -> list[Plan]:
    """Up to four jobs, at most two of them synchronous: those have a process each."""
    rng = Draw("mixture", seed)
    plans = []
    for number in range(rng.between(2, 4)):
        function = plain if number < 2 and rng.below(2) else awaited
        name, options = drawn.strategy(rng, site.nodes)
        parameters = {"seed": 10 * seed + number}
        plans.append(Plan(from_function(function), parameters, name, options, "virtual", site))
    return plans


def alone(plan: Plan, number: int):
    """What a job gives alone: asynchronous, with the seed that it has in the mixture."""
    site = qloom.Site(nodes=plan.site.nodes, qpus=tuple(replace(qpu, outages_s=()) for qpu in plan.site.qpus))
    only = replace(plan, program=from_function(awaited), strategy="offload", options={}, site=site, seed=number)
    return simulate([only], site).outcomes[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_mixtures_end_with_the_results_that_each_job_has_alone(seed):
    site = draw_site(Draw("site", seed))
    plans = draw_plans(seed, site)
    ended = simulate(plans, site)  # which requires that nothing is held and nothing blocks
    require_sound(ended.events, LANES)
    assert ended.outcomes == [alone(plan, number) for number, plan in enumerate(plans)]


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_and_cancellation_leave_nothing_behind(seed):
    rng = Draw("faults", seed)
    site = draw_site(Draw("site", seed))
    plans = draw_plans(seed, site)
    faults = InjectedFaults(seed=seed, task_rate=rng.choice([0.0, 0.1]), quantum_rate=rng.choice([0.1, 0.3]))
    cancelled = {number: 0.1 * rng.below(200) for number in range(len(plans)) if rng.below(2)}
    ended = simulate(plans, site, faults=faults, cancel_at_s=cancelled)
    require_sound(ended.events, LANES)
    for number, (plan, outcome) in enumerate(zip(plans, ended.outcomes, strict=True)):
        if isinstance(outcome, asyncio.CancelledError):
            assert number in cancelled
        elif isinstance(outcome, QloomError):
            assert "injected fault" in str(outcome)
        else:
            assert outcome == alone(plan, number)


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_at_any_event_a_run_ends_with_its_results_and_repeats_nothing(seed):
    """A kill leaves a beginning of the journal: cut there, the run is resumed, and cut again."""
    rng = Draw("kills", seed)
    site = draw_site(Draw("site", seed))
    source = f"{Path(any_program.__file__)}:{rng.choice(['plain', 'awaited'])}"
    name, options = drawn.strategy(rng, site.nodes)
    plan = {"strategy": name, "options": options, "site": site, "parameters": {"seed": seed}}
    whole = qloom.run(source, world="virtual", **plan)
    file = whole.directory / FILE_NAME
    for _ in range(2):
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(lines[: 2 + rng.below(max(1, len(lines) - 3))]))
        resumed = qloom.resume(str(whole.directory))
        assert resumed.errors == []
        assert resumed.result == whole.result
        require_nothing_again(resumed.events)
