"""How good the advisor's choices are: its regret over random scenarios, against the best strategy of all.

    python -m benchmarks.advisor [SCENARIOS] [--seed N] [--workers N] [--wrong FACTOR]
    python -m benchmarks.advisor --rules

A scenario is a cluster of 16 to 64 nodes that has been running rigid jobs (Lublin-Feitelson model, EASY
backfilling, load 0.4 to 0.95), a moment in its life, and a hybrid job that is submitted then. The advisor sees what a
user of Slurm sees: the nodes, the queue with its time limits, the history of the last days, the overheads, and the
user's estimates of the job's durations, each wrong by a factor (`--wrong`, 2), up or down. It does not see how long
jobs will run, nor who comes next, nor how much the program's durations vary. A strategy costs what it costs on
average over futures: ways to go on from that moment, in which the model draws all that cannot be known then.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from random import Random
from statistics import fmean
from typing import Any

from qloom.lab.advisor import advise
from qloom.lab.advisor.advice import SAMPLES
from qloom.lab.advisor.crowd import Queue, Seen, Waits, loaded_line
from qloom.lab.advisor.trial import run_trial
from qloom.lab.campaign.manifest import as_list, circumstances
from qloom.lab.load.background import Background
from qloom.lab.load.engine import Engine
from qloom.lab.load.line import LoadedLine
from qloom.lab.load.source import lublin
from qloom.lab.load.workload import LoadJob, poisson
from qloom.lab.schedulers import make_policy
from qloom.lab.schedulers.state import State
from qloom.programs.load import load_program
from qloom.runs.runner import Plan
from qloom.site import Overheads, Site
from qloom.strategies import STRATEGIES

# The QCE25 paper's engine: mpirun 1.7 s, an expand 2 s, HyperQueue 1.3 s a call, 5.4 s before a workflow's step.
PAPER = Overheads(submit_s=5.4, tick_s=1.0, worker_start_s=1.7, grow_s=2.0, queue_call_s=1.3)
FUTURES = 24
FIRST = 8  # futures for all strategies; who then costs more than HOPELESS times the cheapest is tried in no more
HOPELESS = 2.0
WRONG = 2.0
WORST = 0.25  # what a regret should not be above
HISTORY_S = 3 * 86400.0
WARM_UP_S = 6 * 86400.0
COMING = 300  # jobs of a future
MODEL = 4000  # jobs that stand for the model


@dataclass(frozen=True)
class Moment:
    """A cluster as it is: who runs and waits, and who came before."""

    now: list[Seen]
    before: list[Seen]
    gap_s: float


@dataclass(frozen=True)
class Future:
    """One way in which it goes on."""

    nodes: int
    limit_s: float
    interval_s: float
    jobs: Iterable[LoadJob]

    def line(self, site: Site, clock: Any, rng: Random) -> LoadedLine:
        return loaded_line(self.jobs, self.nodes, self.limit_s, self.interval_s, site, clock)


@dataclass(frozen=True)
class Scenario:
    """A job, what is thought of it, and where it is submitted."""

    moment: Moment
    nodes: int  # of the cluster
    load: float
    limit_s: float
    interval_s: float
    plan: Plan
    estimated: Plan
    seed: str


@dataclass(frozen=True)
class Outcome:
    """What the strategies cost in truth, and which one the advisor took."""

    scenario: Scenario
    chosen: str
    costs: dict[str, list[float]]  # strategy -> in each future

    def regret(self, strategy: str) -> float:
        """How much dearer than the best, on average over the futures that both were tried in."""
        tried = len(self.costs[strategy])
        means = {name: fmean(costs[:tried]) for name, costs in self.costs.items() if len(costs) >= tried}
        return means[strategy] / min(means.values()) - 1


def log_uniform(rng: Random, low: float, high: float) -> float:
    return float(low * (high / low) ** rng.random())


def moment_of(nodes: int, load: float, interval_s: float, rng: Random) -> Moment:
    """Run rigid jobs until the cluster is warm, and look."""
    jobs = poisson(lublin(600, nodes, rng), nodes, load, rng)
    while jobs[-1].submit_s < WARM_UP_S:
        jobs = poisson(lublin(2 * len(jobs), nodes, rng), nodes, load, rng)
    gap_s = jobs[-1].submit_s / len(jobs)
    at_us = round(rng.uniform(0.8, 1.0) * WARM_UP_S * 1e6)
    engine = Engine(State([("nodes", nodes)]), make_policy("easy", interval_s=interval_s), "easy")
    background = Background(engine, ["nodes"], jobs)
    while (next_us := background.next_us()) <= at_us:
        background.step(next_us)
    now: list[Seen] = []
    before: list[Seen] = []
    for entry in [*engine.state.running.values(), *engine.state.waiting]:
        job: LoadJob = entry.owner
        elapsed_s = 0.0 if entry.waiting else (at_us - entry.start_us) / 1e6
        state = "pending" if entry.waiting else "running"
        now.append(Seen(job.nodes, job.limit_s, job.submit_s - at_us / 1e6, elapsed_s, state))
    before += now
    for record in background.records:
        submit_s = record.submit_s - at_us / 1e6
        before.append(Seen(record.nodes, record.limit_s, submit_s, record.end_s - record.start_s, "ended"))
    recent = sorted((seen for seen in before if seen.submit_s >= -HISTORY_S), key=lambda seen: seen.submit_s)
    return Moment(now, recent, gap_s)


def draw(number: int, seed: int, factor: float = WRONG) -> Scenario:
    """A scenario, decided by its number and a seed; its estimates are wrong by the factor."""
    rng = Random(f"{seed} scenario {number}")
    nodes = rng.choice((16, 32, 64))
    load = rng.uniform(0.4, 0.95)
    interval_s = log_uniform(rng, 10.0, 60.0)
    own = rng.randint(2, max(2, nodes // 4))
    iterations = rng.randint(2, 8)
    ratio = log_uniform(rng, 0.02, 50.0)  # of the quantum to the longest classical task
    longest_s = log_uniform(rng, 300.0, 3 * 3600.0) / iterations / (1 + ratio)
    skewed = rng.random() < 0.5  # one task dominates, as in the clustering use case, or all are alike
    tasks_s = [longest_s] + [longest_s * (rng.uniform(0.02, 0.3) if skewed else 1.0) for _ in range(own - 1)]
    parameters: dict[str, Any] = {
        "classical_s": tasks_s,
        "score_s": longest_s * rng.uniform(0.0, 0.8),
        "quantum_s": longest_s * ratio,
        "iterations": iterations,
        "speculate": rng.random() < 0.5,
        "jitter": rng.uniform(0.0, 0.4),
    }
    wrong = {name: rng.choice((1 / factor, factor)) for name in ("classical_s", "score_s", "quantum_s")}
    estimates = {
        **parameters,
        "classical_s": [wrong["classical_s"] * seconds for seconds in tasks_s],
        "score_s": wrong["score_s"] * parameters["score_s"],
        "quantum_s": wrong["quantum_s"] * parameters["quantum_s"],
        "jitter": 0.0,
    }
    overheads = Overheads(
        submit_s=rng.uniform(0.0, 6.0),
        tick_s=interval_s,
        grant_s=rng.uniform(0.0, 1.0),
        worker_start_s=rng.uniform(0.0, 3.0),
        grow_s=rng.uniform(0.0, 6.0),
        release_s=rng.uniform(0.0, 2.0),
    )
    run_s = iterations * (longest_s + parameters["score_s"] + parameters["quantum_s"])
    plan = Plan(load_program("phases"), parameters, world="virtual", site=Site(nodes=own, overheads=overheads))
    estimated = replace(plan, parameters=estimates, seed=number)
    limit_s = rng.uniform(1.2, 4.0) * run_s
    moment = moment_of(nodes, load, interval_s, rng)
    return Scenario(moment, nodes, load, limit_s, interval_s, plan, estimated, f"{seed} {number}")


def future_of(scenario: Scenario, number: int, drawn: list[LoadJob]) -> list[LoadJob]:
    """Who is there goes on as jobs of the model with the same limit, and others come."""
    rng = Random(f"{scenario.seed} future {number}")
    jobs = []
    for place, seen in enumerate(scenario.moment.now, start=1):
        alike = [job.run_s for job in drawn if job.limit_s == seen.limit_s and job.run_s > seen.elapsed_s]
        run_s = rng.choice(alike) if alike else rng.uniform(seen.elapsed_s, seen.limit_s)
        left_s = max(1e-6, min(run_s, seen.limit_s) - seen.elapsed_s)
        jobs.append(LoadJob(place, 0.0, left_s, seen.nodes, max(left_s, seen.limit_s - seen.elapsed_s)))
    at_s = 0.0
    for job in lublin(COMING, scenario.nodes, rng):
        at_s += rng.expovariate(1 / scenario.moment.gap_s)
        jobs.append(replace(job, number=len(jobs) + 1, submit_s=at_s))
    return jobs


def try_all(scenario: Scenario, futures: int) -> dict[str, list[float]]:
    """What each strategy costs in truth."""
    value = scenario.plan.site.nodes
    costs: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
    drawn = lublin(MODEL, scenario.nodes, Random(f"{scenario.seed} model"))
    for number in range(futures):
        jobs = future_of(scenario, number, drawn)
        crowd = Future(scenario.nodes, scenario.limit_s, scenario.interval_s, jobs)
        least = min(fmean(tried) for tried in costs.values()) if number >= FIRST else float("inf")
        for strategy, tried in costs.items():
            if number >= FIRST and (len(tried) < number or fmean(tried) > HOPELESS * least):
                continue
            plan = replace(scenario.plan, strategy=strategy, seed=1000 + number)
            trial = run_trial(plan, None, crowd, "truth")
            tried.append(value * trial.turnaround_s + trial.node_s)
    return costs


def choose(scenario: Scenario, samples: int) -> str:
    """What the advisor takes."""
    moment = scenario.moment
    queue = Queue(
        scenario.nodes, scenario.limit_s, moment.now, moment.before, HISTORY_S, interval_s=scenario.interval_s
    )
    return advise(scenario.estimated, crowd=queue, samples=samples).strategy


def outcome_of(
    number: int, seed: int, wrong: float = WRONG, futures: int = FUTURES, samples: int = SAMPLES
) -> Outcome:
    """Have the advisor choose, then try all."""
    scenario = draw(number, seed, wrong)
    return Outcome(scenario, choose(scenario, samples), try_all(scenario, futures))


def report(outcomes: list[Outcome]) -> list[str]:
    """A table: the advisor, then each strategy as if it were always taken, best first."""
    lines = ["| | mean regret | worst | taken | best in |", "|---|---|---|---|---|"]
    best = [min(STRATEGIES, key=lambda name: outcome.regret(name)) for outcome in outcomes]

    def line(name: str, taken: list[str]) -> str:
        regrets = [outcome.regret(strategy) for outcome, strategy in zip(outcomes, taken, strict=True)]
        chosen = sum(outcome.chosen == name for outcome in outcomes) if name in STRATEGIES else ""
        wins = best.count(name) if name in STRATEGIES else ""
        return f"| {name} | {fmean(regrets):.1%} | {max(regrets):.1%} | {chosen} | {wins} |"

    lines.append(line("advisor", [outcome.chosen for outcome in outcomes]))
    fixed = sorted(STRATEGIES, key=lambda name: fmean(outcome.regret(name) for outcome in outcomes))
    lines += [line(name, [name] * len(outcomes)) for name in fixed]
    return lines


def rules() -> list[str]:
    """What is advised of the slides' three strategies, by the ratio of the quantum to the classical phase."""
    ratios = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    lines = [
        "| nodes | wait | " + " | ".join(f"{ratio:g}" for ratio in ratios) + " |",
        "|---" * (len(ratios) + 2) + "|",
    ]
    for nodes, wait_s in ((3, 0.0), (3, 30.0), (16, 0.0), (16, 30.0)):
        chosen = []
        for ratio in ratios:
            parameters = {"classical_s": [77.0] * nodes, "score_s": 0.0, "quantum_s": 77 * ratio}
            site = Site(nodes=nodes, overheads=PAPER)
            plan = Plan(load_program("phases"), parameters, world="virtual", site=site)
            chosen.append(advise(plan, crowd=Waits(wait_s), strategies=("vqpu", "malleable", "workflow")).strategy)
        lines.append(f"| {nodes} | {wait_s:g} s | {' | '.join(chosen)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", type=int, nargs="?", default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--wrong", type=float, default=WRONG, help="by how much estimates are wrong")
    parser.add_argument("--rules", action="store_true", help="print the table of the slides' three rules instead")
    given = parser.parse_args()
    if given.rules:
        print("\n".join(rules()))
        return
    began_s = time.monotonic()
    outcomes = []
    with ProcessPoolExecutor(given.workers) as workers:
        for outcome in workers.map(outcome_of, range(given.scenarios), repeat(given.seed), repeat(given.wrong)):
            outcomes.append(outcome)
            regrets = " ".join(f"{name} {outcome.regret(name):.0%}" for name in STRATEGIES)
            print(f"{len(outcomes)}: {outcome.chosen} {outcome.regret(outcome.chosen):.1%} of {regrets}", flush=True)
    print("\n".join(report(outcomes)))
    dear = sum(outcome.regret(outcome.chosen) > WORST for outcome in outcomes)
    print(f"the advisor's regret is above {WORST:.0%} in {dear}")
    print(f"{given.scenarios} scenarios, seed {given.seed}, {time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    main()
    print(f"\n{as_list(circumstances())}", end="")
