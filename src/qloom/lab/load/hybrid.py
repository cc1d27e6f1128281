"""Hybrid jobs among rigid ones: real programs under real strategies, in the virtual world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from qloom.aio import TaskScope
from qloom.errors import AllocationEnded, QloomError
from qloom.job.job import Job
from qloom.journal.events import Resumed, RunStarted
from qloom.journal.file import Journal
from qloom.journal.history import History, read_history
from qloom.lab.load.line import Terms
from qloom.lab.load.records import JobRecord
from qloom.lab.load.workload import Hybrid, LoadJob
from qloom.model import QpuHold, Task, task
from qloom.payloads.adapt import delay
from qloom.programs.load import Program
from qloom.runs.assembly import Assembly
from qloom.runs.runner import Plan
from qloom.site import Site
from qloom.strategies import parse_strategy
from qloom.strategies.base import Holding
from qloom.views.accounting import account
from qloom.world import Request

MOST_REQUEUES = 20


@task(expected_s=lambda seconds, *_: seconds)
def work(seconds: float, iteration: int, part: int, guess: int) -> int:
    """A classical task of a hybrid job."""
    return iteration


async def program(job: Job, *, shape: Hybrid, nodes: int) -> None:
    """Classical tasks, then a quantum one, again and again; perhaps with the next tasks begun early."""

    def tasks(iteration: int, guess: int) -> list[Task]:
        each = max(1, nodes // shape.parts)
        return [work(shape.classical_s, iteration, part, guess).needs(nodes=each) for part in range(shape.parts)]

    rng = Random(job.seed)
    needed = [0 if rng.random() < shape.speculate else 1 for _ in range(shape.iterations)]
    for iteration in range(shape.iterations):
        await job.classical(*tasks(iteration, needed[iteration]))
        if shape.speculate and iteration + 1 < shape.iterations:
            job.speculate(*tasks(iteration + 1, 0))
        await job.quantum(delay(shape.quantum_s, iteration))


@dataclass(frozen=True)
class Wanted:
    """A stretch of time in which a QPU was used, or somebody waited for it."""

    device: str
    begin_us: int
    end_us: int
    used: bool


class HybridJobs:
    """Starts hybrid jobs when they arrive, and keeps what came of them."""

    def __init__(self, site: Site, strategy: str, options: dict[str, float], seed: int) -> None:
        self.errors: list[QloomError] = []
        self.qpu_times: list[Wanted] = []
        self.over: Callable[[JobRecord], None] = lambda record: None
        self.broken: Callable[[BaseException], None] = lambda error: None  # a bug, not a job that failed
        self._strategy = strategy
        self._options = options
        self._seed = seed
        self._shares = max((qpu.shares for qpu in site.qpus), default=1)
        self._program = Program("a hybrid job of a workload", program)
        self._jobs: dict[str, LoadJob] = {}
        self._attempts: dict[str, asyncio.Task[Any]] = {}
        self._expired: dict[str, bool] = {}  # jobs that are being ended at a time limit
        self._timeouts: dict[str, int] = {}  # how often a job was
        self._start = RunStarted(n=0, site=site.as_dict())
        self._site_of = cache(lambda nodes: replace(site, nodes=nodes))

    def attach(self, assembly: Assembly) -> None:
        """Where the jobs run."""
        self._assembly = assembly
        self._running = TaskScope(on_failure=lambda error: self.broken(error))

    def arrived(self, job: LoadJob) -> None:
        """Begin a job at this instant."""
        self._running.spawn(self._run(job))

    def expired(self, job: str) -> None:
        """The time limit of something that a job holds is over: it is ended, as Slurm does."""
        if job in self._attempts and job not in self._expired and self._attempts[job].cancel():
            self._expired[job] = True
            self._timeouts[job] = self._timeouts.get(job, 0) + 1

    def terms(self, request: Request) -> Terms:
        """How long a request is for, as the job's user would say."""
        job = self._jobs[request.job]
        assert job.hybrid is not None  # noqa: S101
        strategy = parse_strategy(job.hybrid.strategy or self._strategy)[0]
        factor = job.limit_s / max(job.run_s, 1.0)  # users are wrong about a phase as they are about a job
        if strategy.holds is Holding.PHASE:  # a time limit is for what is kept
            seconds = job.hybrid.classical_s if request.least_nodes else job.hybrid.quantum_s
            if request.qpu is QpuHold.SHARE:  # others may be served before
                seconds *= self._shares
        elif strategy.holds is Holding.ITERATION:
            seconds = job.hybrid.classical_s + job.hybrid.quantum_s
        else:
            seconds = job.run_s
        learnt = 2 ** self._timeouts.get(request.job, 0)  # who was ended at a limit asks for twice the time
        return Terms(max(1.0, factor * seconds) * learnt, strategy.resizes)

    async def _run(self, job: LoadJob) -> None:
        """Run a job to its end; one that is ended before goes back to the line and repeats only what is missing."""
        assert job.hybrid is not None  # noqa: S101
        name, strategy = f"j{job.number}", job.hybrid.strategy or self._strategy
        self._jobs[name] = job
        journal = Journal(None, self._assembly.world.clock)
        assert journal.events is not None  # noqa: S101  it is in memory
        journal.events.append(self._start)
        assembly = self._assembly.with_journal(journal).looking_ahead(strategy)
        parameters = {"shape": job.hybrid, "nodes": job.nodes}
        site = self._site_of(job.nodes)
        plan = Plan(self._program, parameters, strategy, self._options, "virtual", site, seed=self._seed)
        state, requeues = "failed", 0
        for requeues in range(MOST_REQUEUES + 1):
            assembly = replace(assembly, past=list(journal.events))
            if requeues:
                journal.record(Resumed())
            self._expired.pop(name, None)
            attempt = self._attempts[name] = assembly.start_job(plan, job.number - 1)
            try:
                await attempt
            except AllocationEnded:
                state = "failed"
                continue
            except asyncio.CancelledError:
                if name not in self._expired:
                    raise
                state = "timeout"
                continue
            except QloomError as error:
                state = "failed"
                self.errors.append(error)
            else:
                state = "done"
            break
        del self._jobs[name], self._attempts[name]
        self._expired.pop(name, None)
        self._timeouts.pop(name, None)
        self.over(self._record(job, strategy, state, requeues, read_history(journal.events)))

    def _record(self, job: LoadJob, strategy: str, state: str, requeues: int, history: History) -> JobRecord:
        figures = account(history)
        now_us = self._assembly.world.clock.now_us()
        first_us = min((interval.begin_us for interval in history.intervals), default=now_us)
        its = history.run.jobs[f"j{job.number}"]
        wasted_us = 0
        for interval in history.intervals:
            if interval.kind == "quantum":
                self.qpu_times.append(Wanted(interval.resource, interval.begin_us, interval.end_us, True))
            elif interval.kind == "spare" and (interval.state != "done" or interval.work not in its.claimed):
                wasted_us += (interval.end_us - interval.begin_us) * len(interval.resources)
        for wait in history.waits:
            if wait.device and wait.outcome in ("granted", "withdrawn", "quantum_started") and wait.observed_us > 0:
                until_us = wait.begin_us + wait.observed_us
                self.qpu_times.append(Wanted(wait.device, wait.begin_us, until_us, False))
        return JobRecord(
            job.number, "hybrid", strategy, job.project, job.partition, job.nodes, job.limit_s, job.run_s,
            its.submitted_us / 1e6, first_us / 1e6, now_us / 1e6, state, requeues,
            figures.node_s_held, figures.node_s_busy, figures.qpu_s_held, figures.qpu_s_busy, wasted_us / 1e6,
            figures.energy_j or 0.0,
        )  # fmt: skip
