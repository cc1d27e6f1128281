"""One job of a run, from its submission to its end."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qloom.broker.port import BrokerPort
from qloom.errors import JobError, QloomError
from qloom.job.cluster import JobCluster
from qloom.job.job import Job
from qloom.job.qpu import JobQpu
from qloom.journal.event import Event
from qloom.journal.events import JobEnded, JobSubmitted, ResultMissing
from qloom.journal.file import Journal
from qloom.journal.replay import recall
from qloom.ports import Requirements, World
from qloom.runs.plan import Plan
from qloom.strategies import make_strategy
from qloom.views.forecast import Forecaster


async def run_job(
    plan: Plan,
    number: int,
    world: World,
    broker: BrokerPort,
    journal: Journal,
    *,
    past: Sequence[Event] = (),
    directory: Path | None = None,
    output: Path | None = None,
    forecaster: Forecaster | None = None,
) -> Any:
    """Run one job of a plan to its end. If several strategies are named, the jobs take them in turn."""
    name = f"j{number + 1}"
    recorder = journal.recorder(name)
    cluster = JobCluster(world, broker, recorder)
    strategies = plan.strategy.split(",")
    forecast = forecaster.of(name) if forecaster is not None else None
    required = Requirements(cluster, plan.site.nodes, options=plan.options, forecast=forecast)
    if not any(isinstance(event, JobSubmitted) and event.job == name for event in past):
        recorder.record(JobSubmitted())
    memory = recall(past, name)
    for work in [work for work, kept in memory.results.items() if not journal.results.has(kept)]:
        recorder.record(ResultMissing(work=work))  # it is run again
        memory.forget(work)
    strategy = make_strategy(strategies[number % len(strategies)], required)
    cluster.unused.patience_s = strategy.patience_s
    job = Job(
        name,
        strategy,
        cluster,
        JobQpu(broker, cluster, recorder),
        journal,
        memory,
        seed=plan.seed + number,
        shared_directory=None if directory is None else directory / "shared",
        output_dir=_output_directory(output, name),
    )
    try:
        result = await job.run(plan.program.call(job, plan.parameters))
        kept = recorder.keep(result)
    except asyncio.CancelledError:
        recorder.record(JobEnded(state="interrupted"))
        raise
    except Exception as failure:
        error = failure if isinstance(failure, QloomError) else _program_failed(failure, name)
        recorder.record(JobEnded(state="failed", error=error.as_dict()))
        raise error from failure
    recorder.record(JobEnded(state="done", result=kept), durable=True)
    return result


def _output_directory(output: Path | None, job: str) -> Path | None:
    if output is None:
        return None
    output.mkdir(mode=0o700, exist_ok=True)
    own = output / job
    own.mkdir(mode=0o700, exist_ok=True)
    return own


def _program_failed(failure: Exception, job: str) -> QloomError:
    place = traceback.extract_tb(failure.__traceback__)[-1]
    where = f"{Path(place.filename).name}, line {place.lineno}"
    return JobError(f"the program raised {type(failure).__name__}: {failure} ({where})", job=job)
