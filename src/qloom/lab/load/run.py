"""One run of a loaded cluster: a workload, a policy, and a strategy for its hybrid jobs; and repeats of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from random import Random
from statistics import fmean
from typing import Any, TypeVar

from qloom.errors import Deadlock, InputError, JobError, QloomError
from qloom.journal.file import Journal
from qloom.lab.load.background import Background, Failures, Follows, run_plain
from qloom.lab.load.engine import Engine
from qloom.lab.load.hybrid import HybridJobs
from qloom.lab.load.line import LoadedLine
from qloom.lab.load.metrics import LoadMetrics, Mean, harm_s, mean_of, measure
from qloom.lab.load.records import IN_ORDER, JobRecord
from qloom.lab.load.workload import LoadJob, check_arrivals, closed_loop, poisson, scaled, with_hybrid
from qloom.lab.schedulers import make_policy
from qloom.lab.schedulers.state import State
from qloom.runs.assembly import assemble
from qloom.site import Site
from qloom.strategies import parse_strategy
from qloom.worlds.virtual.loop import VirtualClock, rare_collections, run_virtual
from qloom.worlds.virtual.world import VirtualWorld

FEWEST = 3
T = TypeVar("T")


@dataclass(frozen=True)
class Load:
    """What is run, and how: everything that a result depends on."""

    jobs: Sequence[LoadJob]
    site: Site  # nodes of the first partition, QPUs, overheads, watts
    policy: str = "easy"
    policy_options: dict[str, float] = field(default_factory=dict)
    strategy: str = "offload"  # of the hybrid jobs
    options: dict[str, float] = field(default_factory=dict)  # of the strategy
    hybrid: float = 0.0  # share of the jobs that are made hybrid
    mix: dict[str, float] = field(default_factory=lambda: {"balanced": 1.0})
    hybrid_longest_s: float = float("inf")  # only jobs up to this long and this large become hybrid
    hybrid_largest: int | None = None
    load: float | None = None  # None: as in the trace
    arrivals: str = "trace"
    users: int = 20  # of a closed loop
    think_s: float = 600.0
    partitions: dict[str, int] = field(default_factory=dict)  # further ones
    gres: dict[str, int] = field(default_factory=dict)
    failures: Failures | None = None
    warm_up: float = 0.1
    harm: bool = False  # whether to run it once more without the hybrid jobs, to see what they cost the others
    seed: int = 0

    @property
    def nodes(self) -> int:
        """Nodes of all partitions."""
        return self.site.nodes + sum(self.partitions.values())


@dataclass(frozen=True)
class LoadResult:
    """What came of it: a record per job in the order of submission, and the figures."""

    records: list[JobRecord]
    metrics: LoadMetrics
    errors: list[QloomError]


def run_load(load: Load) -> LoadResult:
    """Run a workload in virtual time. The same `Load` gives the same result."""
    parse_strategy(load.strategy)
    jobs, follows = prepare(load)
    records, hybrid = simulate(load, jobs, follows)
    records.sort(key=IN_ORDER)
    qpus = {qpu.name: qpu.shares for qpu in load.site.qpus}
    metrics = measure(records, load.nodes, qpus, hybrid.qpu_times, load.warm_up)
    if load.harm and metrics.hybrid.jobs and not follows:
        rigid = [job for job in jobs if job.hybrid is None]
        if rigid:
            metrics = replace(metrics, harm_s=harm_s(records, simulate(load, rigid, {})[0], load.warm_up))
    return LoadResult(records, metrics, hybrid.errors)


def prepare(load: Load) -> tuple[list[LoadJob], Follows]:
    """The jobs as they will be submitted: arrivals and phases drawn from the seed."""
    if not load.jobs:
        raise InputError("the workload is empty", hint="a trace with at least one job")
    check_arrivals(load.arrivals)
    rng = Random(f"{load.seed} arrivals")
    jobs = sorted(load.jobs, key=lambda job: (job.submit_s, job.number))
    follows: Follows = {}
    if load.arrivals == "poisson":
        jobs = poisson(jobs, load.nodes, load.load, rng)
    elif load.arrivals == "trace" and load.load is not None:
        jobs = scaled(jobs, load.nodes, load.load)
    if load.hybrid:
        rng = Random(f"{load.seed} mix")
        jobs = with_hybrid(jobs, load.hybrid, load.mix, rng, load.hybrid_longest_s, load.hybrid_largest)
    if load.arrivals == "closed":
        follows = closed_loop(jobs, load.users, load.think_s, Random(f"{load.seed} users"))
    return jobs, follows


def simulate(load: Load, jobs: list[LoadJob], follows: Follows) -> tuple[list[JobRecord], HybridJobs]:
    """Run jobs that are prepared; records come in the order in which the jobs ended."""
    partitions = {"nodes": load.site.nodes, **load.partitions}
    shares = {qpu.name: qpu.shares for qpu in load.site.qpus}
    if len({**partitions, **shares, **load.gres}) != len(partitions) + len(shares) + len(load.gres):
        raise InputError("partitions, QPUs and gres must have different names")
    options = {"interval_s": load.site.overheads.tick_s, **load.policy_options}
    state = State([*partitions.items(), *shares.items(), *load.gres.items()])
    engine = Engine(state, make_policy(load.policy, **options), load.policy)
    coming = [] if follows else jobs
    background = Background(engine, list(partitions), coming, follows, load.failures, Random(f"{load.seed} failures"))
    hybrid = HybridJobs(load.site, load.strategy, load.options, load.seed)
    with rare_collections():
        if any(job.hybrid is not None for job in jobs):
            try:
                _run_in_virtual_time(load.site, background, hybrid)
            except Deadlock:
                engine.refuse_to_wait()  # rather the policy than everybody who waits
                raise
        else:
            run_plain(background)
    if state.running or state.waiting:
        raise JobError("the run is over and something is still held or asked for", hint="this is a bug in qloom")
    return background.records, hybrid


def _run_in_virtual_time(site: Site, background: Background, hybrid: HybridJobs) -> None:
    async def main(clock: VirtualClock) -> None:
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = LoadedLine(background, clock, "nodes", hybrid.terms)
        world = VirtualWorld(site, clock, line=line)
        clock.explain_with(world.who_waits)
        line.jump = clock.jump
        line.lost = world.lose_node
        line.expired = hybrid.expired
        hybrid.over = background.over
        hybrid.broken = lambda error: None if finished.done() else finished.set_exception(error)
        background.hybrid = hybrid.arrived
        background.finished = lambda: finished.set_result(None)
        journal = Journal(None, clock)  # of nobody: each hybrid job has one
        async with assemble(world, journal, queue_call_s=site.overheads.queue_call_s) as assembly:
            hybrid.attach(assembly)
            await finished

    run_virtual(main)


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
