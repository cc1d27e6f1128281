"""The advice: what each strategy is expected to cost, the choice, and why.

The cost of a run is its wall time from submission to end, each second valued at `value` node-seconds (by default as
many as the job may hold nodes), plus the node-seconds that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from qloom.advisor.crowd import Crowd, Waits
from qloom.advisor.known import Drawn, Known
from qloom.advisor.trial import Trial, mean, run_trial
from qloom.errors import InputError, QloomError
from qloom.journal.durations import human_s
from qloom.runner import Plan
from qloom.strategies import STRATEGIES, parse_strategy

DEFAULT = "malleable"  # it needs no durations, and is the least wrong where it is wrong: docs/results/advisor.md
SAMPLES = 24
INTERVAL = 0.9  # of the trials lie in it
EQUAL = 0.001  # costs this near are the same
# Among equals: who holds less of the QPU, then who is told first. A share bounds the wait for it, a queue does not.
PREFERENCE = ("vqpu", "offload", "malleable", "workflow", "weave", "split", "coschedule")


@dataclass(frozen=True)
class Figure:
    """A mean, and where most of the trials lie."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """What a strategy is expected to cost."""

    strategy: str
    wall_s: Figure
    node_s: Figure
    qpu_s: Figure
    cost_node_s: float


@dataclass(frozen=True)
class Advice:
    """What to do and why. With `abstains` (what is missing) the choice is the default."""

    strategy: str
    reason: str
    value_node_s: float = 0.0  # of a second of wall time
    estimates: tuple[Estimate, ...] = ()  # cheapest first
    quantum_s: float = 0.0  # a quantum result, with its queue
    wait_s: float = 0.0  # a request for nodes
    notes: tuple[str, ...] = ()
    abstains: str | None = None

    @property
    def flag(self) -> str:
        """What to type."""
        return f"--strategy {self.strategy}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON and the journal."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        return {**told, "flag": self.flag}


def abstain(missing: str) -> Advice:
    """No advice, and what to do without."""
    reason = f"{missing}: {DEFAULT}, the default, never waits long in the middle and keeps little meanwhile"
    return Advice(DEFAULT, reason, abstains=missing)


def advise(
    plan: Plan,
    *,
    known: Known | None = None,
    crowd: Crowd | None = None,
    strategies: Sequence[str] = tuple(STRATEGIES),
    value_node_s: float | None = None,
    samples: int = SAMPLES,
    qpu_wait_s: float = 0.0,
    progress: Callable[[str], None] = lambda strategy: None,
) -> Advice:
    """Try the strategies on the same draws of durations and other users, and choose the cheapest on average."""
    value = plan.site.nodes * plan.jobs if value_node_s is None else value_node_s
    if not 0 <= value < float("inf"):
        raise InputError(f"a second is worth a finite number of node-seconds, not {value}", hint="--value 3")
    known = Known() if known is None else known
    others: Crowd = Waits() if crowd is None else crowd
    tried: dict[str, list[Trial]] = {}
    notes: list[str] = []
    failures: list[QloomError] = []
    for strategy in strategies:
        progress(strategy)
        options = _options_for(strategy, plan.options)
        variant = replace(plan, strategy=strategy, options=options, world="virtual", profile=None, advice=None)
        try:
            tried[strategy] = []
            for sample in range(samples):
                seed = f"{plan.seed} {sample}"
                trial = run_trial(variant, Drawn(known, seed), others, seed, known, qpu_wait_s)
                if trial.without_duration:
                    return abstain(f"nothing says how long {', '.join(trial.without_duration)} takes")
                tried[strategy].append(trial)
        except QloomError as failure:
            del tried[strategy]
            failures.append(failure)
            notes.append(f"{strategy} fails: {failure.message}")
    if not tried:
        raise failures[0]
    estimates = sorted(
        (_estimate(strategy, trials, value) for strategy, trials in tried.items()), key=lambda each: each.cost_node_s
    )
    quantum_s = mean([seconds for trials in tried.values() for trial in trials for seconds in trial.quantum_s])
    wait_s = mean([seconds for trials in tried.values() for trial in trials for seconds in trial.node_waits_s])
    chosen = _choose(estimates)
    reason = _reason(chosen, estimates, quantum_s, wait_s)
    return Advice(chosen.strategy, reason, value, tuple(estimates), quantum_s, wait_s, tuple(notes))


def _options_for(strategy: str, options: dict[str, float]) -> dict[str, float]:
    own = parse_strategy(strategy)[0].options
    return {name: value for name, value in options.items() if name in own}


def _estimate(strategy: str, trials: list[Trial], value: float) -> Estimate:
    wall_s = _figure([trial.turnaround_s for trial in trials])
    node_s = _figure([trial.node_s for trial in trials])
    qpu_s = _figure([trial.qpu_s for trial in trials])
    return Estimate(strategy, wall_s, node_s, qpu_s, value * wall_s.mean + node_s.mean)


def _figure(values: list[float]) -> Figure:
    ordered = sorted(values)
    out = round((1 - INTERVAL) / 2 * (len(ordered) - 1))
    return Figure(mean(ordered), ordered[out], ordered[len(ordered) - 1 - out])


def _choose(estimates: list[Estimate]) -> Estimate:
    """The cheapest; of those that are as good, the one that is kindest to others who want the QPU."""
    equals = [each for each in estimates if each.cost_node_s <= (1 + EQUAL) * estimates[0].cost_node_s]
    return min(equals, key=lambda each: (round(each.qpu_s.mean / max(1e-9, equals[0].qpu_s.mean), 1), _place(each)))


def _place(estimate: Estimate) -> int:
    name = estimate.strategy.partition("+")[0]
    return PREFERENCE.index(name)


def _reason(chosen: Estimate, estimates: list[Estimate], quantum_s: float, wait_s: float) -> str:
    """Why this one, against the next that is different."""
    facts = f"a quantum result takes {human_s(quantum_s)} and nodes take {human_s(wait_s)} to come"
    limit = (1 + EQUAL) * chosen.cost_node_s
    other = next((each for each in estimates if each.cost_node_s > limit), None)
    if other is None:
        return f"{facts}: all strategies cost the same, and this one leaves the most to others"
    later_s = other.wall_s.mean - chosen.wall_s.mean
    more_node_s = other.node_s.mean - chosen.node_s.mean
    time = f"{human_s(abs(later_s))} {'longer' if later_s >= 0 else 'shorter'}"
    nodes = f"{abs(more_node_s):.0f} node-seconds {'more' if more_node_s >= 0 else 'less'}"
    worse = other.cost_node_s / max(1e-9, chosen.cost_node_s) - 1
    return f"{facts}: the next best, {other.strategy}, would take {time} and hold {nodes}, {worse:.0%} dearer in all"
