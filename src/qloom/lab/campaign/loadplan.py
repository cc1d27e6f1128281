"""Cells that are a whole loaded cluster: a workload among which the strategy's jobs run, in virtual time.

Its journal has one `job_over` for each job, as `qloom load run --csv` writes it, and the figures as `measured`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan, nan
from pathlib import Path

from qloom.journal import home
from qloom.journal.events import JobOver, Measured, RunEnded, RunStarted
from qloom.journal.file import VERSION, Journal, ReplayedClock
from qloom.lab.campaign.workload import Workload
from qloom.lab.load.metrics import LoadMetrics
from qloom.lab.load.mix import parse_mix
from qloom.lab.load.run import Load, LoadResult, run_load
from qloom.lab.load.source import Source
from qloom.runs.runner import Outcome
from qloom.site import Site
from qloom.version import __version__


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
        """Run it in virtual time, and keep what came of it as a run."""
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
