"""The advice: what each strategy is expected to cost, the choice, and why.

The cost of a run is its wall time from submission to end, each second valued at `value` node-seconds (by default as
many as the job may hold nodes), plus the node-seconds that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from qloom.errors import InputError, QloomError
from qloom.lab.advisor.crowd import Crowd, Waits
from qloom.lab.advisor.known import Drawn, Known
from qloom.lab.advisor.trial import Trial, mean, run_trial
from qloom.model import QpuHold
from qloom.runs.runner import Plan
from qloom.strategies import STRATEGIES, options_of, parse_strategy
from qloom.views.summary import human_s

FALLBACK = "malleable"  # it needs no durations, and is the least wrong where it is wrong: docs/results/advisor.md
SAMPLES = 96  # few draws of a busy cluster hold one of the long waits that make a strategy dear
ROUNDS = ((8, 1.5), (24, 1.25))  # trials, and how many times the cheapest one may cost to be tried further
INTERVAL = 0.9  # of the trials lie in it
EQUAL = 0.001  # costs this near are the same
# Among equals: who holds less of the QPU, then by how it is held. A share bounds the wait for it, a queue does not.
KINDEST = (QpuHold.SHARE, QpuHold.TASK, QpuHold.WHOLE)


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
    dearer: float  # than the choice, in the same trials: 0.2 is 20 %
    trials: int


@dataclass(frozen=True)
class Advice:
    """What to do and why. With `abstains` (what is missing) the choice is the fallback."""

    strategy: str
    reason: str
    value_node_s: float = 0.0  # of a second of wall time
    estimates: tuple[Estimate, ...] = ()  # the choice, then the others by cost
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
        values = {name: value for name, value in asdict(self).items() if value is not None}
        return {**values, "flag": self.flag}


def abstain(missing: str) -> Advice:
    """No advice, and what to do without."""
    reason = f"{missing}: {FALLBACK}, the fallback, never waits long in the middle and keeps little meanwhile"
    return Advice(FALLBACK, reason, abstains=missing)


def advise(
    plan: Plan,
    *,
    known: Known | None = None,
    crowd: Crowd | None = None,
    strategies: Sequence[str] = tuple(STRATEGIES.built_in),
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
    tried: dict[str, list[Trial]] = {strategy: [] for strategy in strategies}
    failures: dict[str, QloomError] = {}
    worth = list(tried)
    done = 0
    for until, dearer in (*ROUNDS, (samples, 1.0)):
        batch = range(done, min(until, samples))
        done = batch.stop
        for strategy in worth:
            progress(strategy)
            options = _options_for(strategy, plan.options)
            variant = replace(plan, strategy=strategy, options=options, world="virtual", profile=None, advice=None)
            try:
                for sample in batch:
                    seed = f"{plan.seed} {sample}"
                    trial = run_trial(variant, Drawn(known, seed), others, seed, known, qpu_wait_s)
                    if trial.without_duration:
                        return abstain(f"nothing says how long {', '.join(trial.without_duration)} takes")
                    tried[strategy].append(trial)
            except QloomError as failure:
                failures[strategy] = failure
                del tried[strategy]
        worth = _still_worth({name: tried[name] for name in worth if name in tried}, value, dearer)
        if not worth:
            raise next(iter(failures.values()))
        if len(worth) == 1 or done == samples:
            break
    chosen = min(worth, key=lambda name: _cost(tried[name], value))
    estimates = sorted(
        (_estimate(strategy, trials, tried[chosen], value) for strategy, trials in tried.items()),
        key=lambda each: (each.strategy != chosen, each.dearer),
    )
    quantum_s = mean([seconds for trials in tried.values() for trial in trials for seconds in trial.quantum_s])
    wait_s = mean([seconds for trials in tried.values() for trial in trials for seconds in trial.node_waits_s])
    reason = _reason(estimates, quantum_s, wait_s)
    notes = [f"{strategy} fails: {failure.message}" for strategy, failure in failures.items()]
    return Advice(chosen, reason, value, tuple(estimates), quantum_s, wait_s, tuple(notes))


def _options_for(strategy: str, options: dict[str, float]) -> dict[str, float]:
    own = options_of(strategy)
    return {name: value for name, value in options.items() if name in own}


def _estimate(strategy: str, trials: list[Trial], best: list[Trial], value: float) -> Estimate:
    wall_s = _figure([trial.turnaround_s for trial in trials])
    node_s = _figure([trial.node_s for trial in trials])
    qpu_s = _figure([trial.qpu_s for trial in trials])
    dearer = _cost(trials, value) / max(1e-9, _cost(best[: len(trials)], value)) - 1
    return Estimate(strategy, wall_s, node_s, qpu_s, round(dearer, 6), len(trials))


def _cost(trials: list[Trial], value: float) -> float:
    return mean([value * trial.turnaround_s + trial.node_s for trial in trials])


def _figure(values: list[float]) -> Figure:
    ordered = sorted(values)
    out = round((1 - INTERVAL) / 2 * (len(ordered) - 1))
    return Figure(round(mean(ordered), 3), round(ordered[out], 3), round(ordered[len(ordered) - 1 - out], 3))


def _still_worth(tried: dict[str, list[Trial]], value: float, dearer: float) -> list[str]:
    """Who may be the cheapest in the end; of those that cost the same, who is kindest to others who want the QPU."""
    costs = {strategy: _cost(trials, value) for strategy, trials in tried.items()}
    kept: list[str] = []
    for strategy in sorted(costs, key=lambda strategy: _unkindness(strategy, tried[strategy])):
        is_new = all(abs(costs[strategy] - costs[other]) > EQUAL * costs[other] for other in kept)
        if is_new and costs[strategy] <= dearer * (1 + EQUAL) * min(costs.values()):
            kept.append(strategy)
    return kept


def _unkindness(strategy: str, trials: list[Trial]) -> tuple[float, int]:
    usual, named = parse_strategy(strategy)
    hold = named or usual.usual_qpu_hold
    return round(mean([trial.qpu_s for trial in trials]), 1), KINDEST.index(hold)


def _reason(estimates: list[Estimate], quantum_s: float, wait_s: float) -> str:
    """Why the first of these, against the next that is different."""
    facts = f"a quantum result takes {human_s(quantum_s)} and nodes take {human_s(wait_s)} to come"
    chosen = estimates[0]
    other = next((each for each in estimates if each.dearer > EQUAL), None)
    if len(estimates) == 1:
        return f"{facts}; no other strategy was tried"
    if other is None:
        return f"{facts}: all strategies cost the same, and this one leaves the most to others"
    later_s = round(other.wall_s.mean - chosen.wall_s.mean, 1)
    more_node_s = other.node_s.mean - chosen.node_s.mean
    time = f"{human_s(abs(later_s))} {'slower' if later_s > 0 else 'faster'}" if later_s else "as fast"
    nodes = f"{abs(more_node_s):.0f} node-seconds {'more' if more_node_s >= 0 else 'less'}"
    joined = "but" if later_s and (later_s > 0) != (more_node_s >= 0) else "and"
    dearer = f"{100 * other.dearer:.0f} % dearer"
    return f"{facts}; the next best, {other.strategy}, would be {time} {joined} hold {nodes}: {dearer}"
