"""From a cell to what is run: an ordinary plan, as `qloom run` would carry it out, or a whole loaded cluster.

A cell with a workload runs in virtual time, with the strategy's jobs among others. Its journal has one `job_over`
for each job, as `qloom load run --csv` writes it, and the figures as `measured`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import isnan, nan
from pathlib import Path
from random import Random
from typing import Any

from qloom.devices.technologies import technology
from qloom.errors import InputError
from qloom.journal import home
from qloom.journal.events import JobOver, Measured, RunEnded, RunStarted
from qloom.journal.file import VERSION, Journal, ReplayedClock
from qloom.lab.campaign.cells import Cell, Workload, read_workload
from qloom.lab.campaign.model import PoissonArrivals, Setting
from qloom.lab.load.metrics import LoadMetrics
from qloom.lab.load.run import Load, LoadResult, run_load
from qloom.lab.load.source import Source
from qloom.lab.load.workload import parse_mix
from qloom.programs.load import load_program
from qloom.runs.runner import Outcome, Plan
from qloom.site import Site, site_from
from qloom.strategies import options_of
from qloom.version import __version__

SEED_DISTANCE = 1000  # between repeats: jobs of one run have seeds next to each other
PATIENCE_GROWTHS = 3  # a scaled patience is at least this many times the time that growing takes


@dataclass(frozen=True)
class Conditions:
    """How a campaign is run this time."""

    world: str | None = None  # None: what its cells say
    scale: float = 1.0  # all times of programs and strategies are multiplied by this, overheads are not
    overheads: Mapping[str, float] | None = None  # measured ones, instead of the campaign's


def parse_scale(text: str) -> float:
    """`1/5` or `0.2`."""
    try:
        scale = float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        scale = 0.0
    if not 0 < scale <= 1:
        raise InputError(f"{text!r} is not a scale", hint="--scale 1/5")
    return scale


def plan_for(cell: Cell, seed: int, repeat: int, under: Conditions) -> Plan | LoadPlan:
    """The plan of one repeat. Cells of one repeat have the same seed, so strategies meet the same random numbers."""
    setting = cell.setting
    strategy = setting.strategies
    world = under.world or setting.world or "virtual"
    overheads = dict(setting.overheads) if under.overheads is None else dict(under.overheads)
    grow_s = overheads.get("grow_s", 0.0)
    own_seed = seed + SEED_DISTANCE * repeat
    options = _options(cell, under.scale, grow_s)
    if setting.workload:
        if world != "virtual" or under.scale != 1:
            raise InputError(f"{cell.id}: a workload runs in virtual time, and as it is", hint="--world virtual")
        return LoadPlan(read_workload(setting), strategy, options, _site(setting, overheads), own_seed)
    plan = Plan(
        load_program(setting.program or "phases"),
        _parameters(setting, own_seed, under.scale, grow_s),
        strategy=strategy,
        options=options,
        world=world,
        site=_site(setting, overheads if world == "virtual" else {}),  # elsewhere the engine has its own
        jobs=setting.jobs or 1,
        seed=own_seed,
        engine=setting.engine,
    )
    try:
        plan.check()
    except InputError as error:
        raise InputError(f"{cell.id}: {error.message}", hint=error.hint) from None
    return plan


def _parameters(setting: Setting, seed: int, scale: float, grow_s: float) -> dict[str, Any]:
    """Of the program, its times scaled."""
    given = dict(setting.parameters)
    if setting.shots is not None:
        kind = technology(setting.technology or "annealer")
        given["quantum_s"] = round(kind.set_up_s + setting.shots * kind.per_shot_s, 6)
    if isinstance(setting.arrivals, PoissonArrivals):
        given["arrivals_s"] = _by_chance(setting.arrivals.mean_s, setting.jobs or 1, seed)
    elif setting.arrivals is not None:
        given["arrivals_s"] = list(setting.arrivals)
    parameters = {name: _scaled(value, scale) if name.endswith("_s") else value for name, value in given.items()}
    if isinstance(given.get("arrivals_s"), list):  # a job that comes when others have grown still does so
        soonest_s = [min(at_s, grow_s) for at_s in given["arrivals_s"]]
        parameters["arrivals_s"] = [max(*pair) for pair in zip(parameters["arrivals_s"], soonest_s, strict=True)]
    return parameters


def _by_chance(mean_s: float, jobs: int, seed: int) -> list[float]:
    random, now_s = Random(seed), 0.0
    arrivals_s = []
    for _ in range(jobs):
        arrivals_s.append(round(now_s, 6))
        now_s += random.expovariate(1 / mean_s) if mean_s else 0.0
    return arrivals_s


def _scaled(value: Any, scale: float) -> Any:
    if isinstance(value, list):
        return [_scaled(item, scale) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float) or scale == 1:
        return value
    return round(value * scale, 6)


def _options(cell: Cell, scale: float, grow_s: float) -> dict[str, float]:
    """Those of the strategies of the cell; a patience that is scaled down still lets a growth succeed."""
    names = cell.setting.strategies.split(",")
    options = _shared_options(cell, names)
    if scale == 1:
        return options
    usual = {key: value for name in names for key, value in options_of(name).items()}
    scaled = {key: _scaled(value, scale) for key, value in {**usual, **options}.items() if key.endswith("_s")}
    if "patience_s" in scaled:
        scaled["patience_s"] = max(scaled["patience_s"], PATIENCE_GROWTHS * grow_s)
    return {**options, **scaled}


def _shared_options(cell: Cell, names: list[str]) -> dict[str, float]:
    """Jobs of one run that take strategies in turn have the same options: what is for some of them is refused."""
    own = {name: cell.setting.options_of(name) for name in names}
    shared = {key: value for options in own.values() for key, value in options.items()}
    for key, value in shared.items():
        for name in names:
            its = own[name].get(key, options_of(name).get(key, value))
            if its != value:
                clash = f"option {key} is {its:g} for {name} and {value:g} for another strategy of the same run"
                raise InputError(f"{cell.id}: {clash}", hint="jobs that take strategies in turn share their options")
    return shared


def _site(setting: Setting, overheads: dict[str, float]) -> Site:
    qpu = {"technology": setting.technology, "shares": setting.shares, "lanes": setting.lanes}
    one = {key: value for key, value in qpu.items() if value is not None}
    nodes = setting.nodes or 3
    values: dict[str, Any] = {
        "nodes": setting.job_nodes or nodes,
        "cluster_nodes": nodes,
        "qpus": setting.qpus or [one],
        "overheads": overheads,
    }
    return site_from(values, "the site of a cell")


@dataclass(frozen=True)
class LoadPlan:
    """A workload on a site under a strategy; it is carried out like a plan of jobs."""

    workload: Workload
    strategy: str
    options: dict[str, float]
    site: Site
    seed: int
    world: str = field(default="virtual", init=False)

    def execute(self) -> Outcome:
        """Run it in virtual time, and keep the results as a run."""
        wanted = self.workload
        result = run_load(
            Load(
                Source(jobs=wanted.jobs).read(self.site.nodes, self.seed),
                self.site,
                policy=wanted.policy,
                policy_options={"interval_s": wanted.interval_s},
                strategy=self.strategy,
                options=self.options,
                hybrid=wanted.hybrid,
                mix=parse_mix(wanted.mix),
                hybrid_longest_s=wanted.hybrid_longest_h * 3600,
                load=wanted.load,
                arrivals=wanted.arrivals,
                warm_up=wanted.warm_up,
                harm=True,
                seed=self.seed,
            )
        )
        directory = home.new_run()
        self._write(directory, result)
        return Outcome(directory.name, directory, [], result.errors, [], [])

    def _write(self, directory: Path, result: LoadResult) -> None:
        clock = ReplayedClock()
        journal = Journal(directory, clock, durable=False)
        try:
            journal.record(RunStarted(
                version=VERSION, qloom=__version__, program="workload",
                parameters=self.workload.model_dump(), strategy=self.strategy, options=self.options or None,
                world=self.world, site=self.site.as_dict(), jobs=len(result.records), seed=self.seed,
            ))  # fmt: skip
            for record in sorted(result.records, key=lambda record: (record.end_s, record.number)):
                clock.set(round(record.end_s * 1e6))
                journal.record(JobOver(record=record._asdict()))
            journal.record(Measured(figures=figures_under_load(result.metrics)))
            journal.record(RunEnded(state="failed" if result.errors else "done"))
        finally:
            journal.close()


def figures_under_load(metrics: LoadMetrics) -> dict[str, float]:
    """What a campaign compares; without what there was nothing to measure of."""
    figures = {
        "hybrid_wait_s": metrics.hybrid.wait_s.value,
        "hybrid_turnaround_s": metrics.hybrid.turnaround_s.value,
        "hybrid_slowdown": metrics.hybrid.bounded_slowdown.value,
        "rigid_wait_s": metrics.rigid.wait_s.value,
        "rigid_slowdown": metrics.rigid.bounded_slowdown.value,
        "harm_s": metrics.harm_s.value if metrics.harm_s is not None else nan,
        "node_use": metrics.node_utilisation,
        "qpu_use": metrics.qpu_utilisation,
    }
    return {name: round(value, 6) for name, value in figures.items() if not isnan(value)}
