"""World, broker, journal and jobs put together: once, for runs, loads, trials of the advisor, and tests.

Whoever assembles them makes the world and the journal, and decides which jobs start when. What a job is made of, how
it is recorded, and in which order everything ends is here alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from qloom.aio import TaskScope, finish, run_to_end
from qloom.broker.inprocess import InProcessBroker
from qloom.broker.port import BrokerPort
from qloom.errors import QloomError
from qloom.job.cluster import JobCluster
from qloom.job.failures import program_failed, users_traceback
from qloom.job.job import Job
from qloom.job.qpu import JobQpu
from qloom.journal.event import Event
from qloom.journal.events import JobEnded, JobSubmitted, ResultMissing
from qloom.journal.file import Journal
from qloom.journal.queries import is_submitted
from qloom.journal.replay import recall
from qloom.ports import Requirements
from qloom.runs.plan import Plan
from qloom.strategies import make_strategy, parse_strategy
from qloom.views.forecast import Forecaster, learn
from qloom.world import World


class RunLimit(Protocol):
    """Ends the jobs of a run, such as its budget."""

    reached: asyncio.Future[None]  # done when they are to end

    def error(self) -> QloomError:
        """What a job that is ended fails with."""


@dataclass(frozen=True)
class Assembly:
    """A world, a broker and a journal, and the jobs that run in them."""

    world: World
    broker: BrokerPort
    journal: Journal
    past: Sequence[Event] = ()  # what the journal held before: jobs replay it
    forecaster: Forecaster | None = None
    directory: Path | None = None  # of the run; None: it is in memory only
    output: Path | None = None  # where programs put their files
    jobs: TaskScope = field(default_factory=TaskScope)
    limits: tuple[RunLimit, ...] = ()  # each ends the jobs before they are done
    has_stopped: Callable[[], bool] | None = None  # whether answers of QPUs are no longer given to programs
    may_differ: bool = False  # a program may differ from what the journal held before

    def looking_ahead(self, strategies: str, earlier: Callable[[], Iterable[Sequence[Event]]] = tuple) -> Assembly:
        """The same with a forecaster, if one of the strategies wants one; it learns from `earlier` runs first."""
        if not any(parse_strategy(name)[0].wants_forecast for name in strategies.split(",")):
            return self
        return replace(self, forecaster=learn(self.journal, list(earlier())))

    def with_journal(self, journal: Journal) -> Assembly:
        """The same world and broker, for a job that is recorded elsewhere."""
        return replace(self, journal=journal, forecaster=None)

    def start_job(self, plan: Plan, number: int) -> asyncio.Task[Any]:
        """Start a job, which is cancelled at the latest when everything ends."""
        return self.jobs.start(self.run_job(plan, number))

    async def run_job(self, plan: Plan, number: int) -> Any:
        """Run one job of a plan to its end. If several strategies are named, the jobs take them in turn."""
        name = f"j{number + 1}"
        journal, past = self.journal, self.past
        recorder = journal.recorder(name)
        cluster = JobCluster(self.world, self.broker, recorder)
        strategies = plan.strategy.split(",")
        forecast = self.forecaster.of(name) if self.forecaster is not None else None
        required = Requirements(cluster, plan.site.nodes, options=plan.options, forecast=forecast)
        if not is_submitted(past, name):
            recorder.record(JobSubmitted())
        memory = recall(past, name)
        memory.may_differ = self.may_differ
        for work in [work for work, kept in memory.results.items() if not journal.results.has(kept)]:
            recorder.record(ResultMissing(work=work))  # it is run again
            memory.forget(work)
        strategy = make_strategy(strategies[number % len(strategies)], required)
        cluster.unused.patience_s = strategy.patience_s
        job = Job(
            name,
            strategy,
            cluster,
            JobQpu(self.broker, cluster, recorder, self.has_stopped),
            journal,
            memory,
            seed=plan.seed + number,
            shared_directory=None if self.directory is None else self.directory / "shared",
            output_dir=_output_directory(self.output, name),
        )
        try:
            if (limit := self._reached_limit()) is not None:  # before the program has begun
                raise limit.error()
            result = await self._within_limits(job.run(plan.program.call(job, plan.parameters, alone=plan.jobs == 1)))
            kept = recorder.keep(result)
        except asyncio.CancelledError:
            recorder.record(JobEnded(state="interrupted"))
            raise
        except Exception as failure:
            error = program_failed(failure, name)
            if self.directory is not None and error is not failure:
                log_failure(self.directory / "logs" / f"{name}.log", failure)
            recorder.record(JobEnded(state="failed", error=error.as_dict()))
            raise error from failure
        recorder.record(JobEnded(state="done", result=kept), durable=True)
        return result

    async def _within_limits(self, job: Coroutine[Any, Any, Any]) -> Any:
        """Run a job, which is cancelled, and gives everything back, when a limit of its run is reached."""
        if not self.limits:
            return await job
        running = self.jobs.start(job)
        either: list[asyncio.Future[Any]] = [running, *(limit.reached for limit in self.limits)]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_over = running.done()
            await finish(running, cancel=not is_over)
        if not is_over and (limit := self._reached_limit()) is not None:
            raise limit.error()
        return running.result()

    def _reached_limit(self) -> RunLimit | None:
        return next((limit for limit in self.limits if limit.reached.done()), None)

    async def aclose(self) -> None:
        """Cancel the jobs that still run, then close the broker, then the world."""
        await self.jobs.aclose()
        await self.broker.close()
        await self.world.close()


@asynccontextmanager
async def assemble(
    world: World,
    journal: Journal,
    broker: BrokerPort | None = None,
    *,
    queue_call_s: float = 0.0,
    past: Sequence[Event] = (),
    directory: Path | None = None,
    output: Path | None = None,
) -> AsyncIterator[Assembly]:
    """Put the parts together and close all but the journal at the end, even if the caller is cancelled meanwhile.

    Without a `broker`, the devices of the world get one in this process; a call to it takes `queue_call_s`.
    """
    if broker is None:
        broker = InProcessBroker(world.devices, world.shares, world.clock, queue_call_s)
    assembly = Assembly(world, broker, journal, past, directory=directory, output=output)
    try:
        yield assembly
    finally:
        await run_to_end(assembly.aclose())


def log_failure(log: Path, failure: BaseException) -> None:
    """Add the traceback of what a program raised to its log; a full disk must not hide the failure itself."""
    with contextlib.suppress(OSError):
        log.parent.mkdir(mode=0o700, exist_ok=True)
        with log.open("a") as file:
            file.write(users_traceback(failure))


def _output_directory(output: Path | None, job: str) -> Path | None:
    if output is None:
        return None
    output.mkdir(mode=0o700, exist_ok=True)
    own = output / job
    own.mkdir(mode=0o700, exist_ok=True)
    return own
