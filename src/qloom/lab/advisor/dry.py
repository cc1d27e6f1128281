"""A dry run: the first iteration of a program in virtual time, under each strategy, and what it asks for.

The first iteration is over when the program has its first answer of a QPU, or has ended. Each piece of work is
computed once; nothing is held, sent or written anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from qloom.errors import QloomError
from qloom.journal.event import Event
from qloom.journal.events import Called, Returned, RunStarted
from qloom.journal.file import Journal
from qloom.journal.history import read_history
from qloom.journal.replay import recall
from qloom.lab.advisor.known import Known
from qloom.model import QuantumWork, Work
from qloom.runs.assembly import assemble
from qloom.runs.plan import Plan
from qloom.views.accounting import account
from qloom.worlds.virtual.loop import VirtualClock, run_virtual
from qloom.worlds.virtual.world import VirtualWorld


@dataclass(frozen=True)
class Demand:
    """What the jobs of a run ask for in their first iteration."""

    tasks: int = 0
    quantum_calls: int = 0
    circuits: int = 0
    shots: int = 0
    qpu_s: float = 0.0  # that a QPU would execute

    def __str__(self) -> str:
        if not self.quantum_calls:
            return f"{_number(self.tasks, 'task')} and no quantum call"
        circuits = f"{_number(self.circuits, 'circuit')}, " if self.circuits else ""
        calls = _number(self.quantum_calls, "quantum call")
        return f"{_number(self.tasks, 'task')}, {calls}: {circuits}{self.shots} shots, {self.qpu_s:.1f} QPU-seconds"


@dataclass(frozen=True)
class DryRun:
    """What the first iteration asks for, and what each strategy would hold for it: rows of figures."""

    demand: Demand
    rows: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"first_iteration": asdict(self.demand), "strategies": self.rows}


def dry_run(plan: Plan, strategies: Sequence[str]) -> DryRun:
    """Try the first iteration under each strategy; raises what the program raises."""
    known = Known()
    demand, rows = Demand(), []
    for strategy in strategies:
        variant = replace(plan, strategy=strategy, options=plan.options if strategy == plan.strategy else {})
        events = run_virtual(lambda clock, variant=variant: _try(variant, known, clock))  # type: ignore[misc]
        figures = account(read_history(events))
        rows.append({"strategy": strategy, **figures.as_dict()})
        if strategy == plan.strategy or not demand.tasks + demand.quantum_calls:
            demand = replace(_demand(events), qpu_s=figures.qpu_s_busy)
    return DryRun(demand, rows)


async def _try(plan: Plan, known: Known, clock: VirtualClock) -> list[Event]:
    site = replace(plan.site, broker=None)
    world = VirtualWorld(site, clock, _Remembered(known))
    clock.explain_with(world.who_waits)
    journal = Journal(None, clock)
    assert journal.events is not None  # noqa: S101  it is in memory
    journal.record(RunStarted(site=site.as_dict(), jobs=plan.jobs))
    async with assemble(world, journal, queue_call_s=site.overheads.queue_call_s) as assembly:
        assembly = assembly.looking_ahead(plan.strategy)
        limits = [_FirstIteration(journal, f"j{number + 1}") for number in range(plan.jobs)]
        running = [replace(assembly, limits=(limit,)).start_job(plan, n) for n, limit in enumerate(limits)]
        ended = await asyncio.gather(*running, return_exceptions=True)
    failures = [
        error for error in ended if isinstance(error, BaseException) and not isinstance(error, _IterationOver)
    ]
    if failures:
        raise failures[0]
    known.remember(recall(journal.events), journal.results)
    return journal.events


class _IterationOver(QloomError):
    """The job has had its first answer of a QPU."""


class _FirstIteration:
    """Ends a job of a dry run when it has had an answer of a QPU."""

    def __init__(self, journal: Journal, job: str) -> None:
        self.reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._job = job
        self._quantum: dict[str, None] = {}
        journal.listen(self._observe)

    def error(self) -> QloomError:
        """What a job is ended with."""
        return _IterationOver("the first iteration is over")

    def _observe(self, event: Event) -> None:
        if event.job != self._job or self.reached.done():
            return
        if isinstance(event, Called) and event.kind == "quantum":
            self._quantum[event.call] = None
        elif isinstance(event, Returned) and event.call in self._quantum:
            self.reached.set_result(None)


class _Remembered:
    """Expected durations, and the results of the strategies that were tried before."""

    measures_programs = False

    def __init__(self, known: Known) -> None:
        self.has = known.has
        self.result = known.result

    def seconds(self, work: Work | QuantumWork) -> None:
        """As the task or the device says."""

    def program_s(self, job: str, call: str | None, awaited: bool) -> None:
        """As the program declares."""


def _demand(events: Sequence[Event]) -> Demand:
    """What was called for until the first answer of each job."""
    calls: list[Called] = []
    quantum: list[Called] = []
    over: dict[str, None] = {}  # jobs that have had an answer
    for event in events:
        if isinstance(event, Called) and event.job not in over:
            calls.append(event)
            quantum += [event] if event.kind == "quantum" else []
        elif isinstance(event, Returned) and any(event.call == call.call for call in quantum):
            over[event.job] = None
    return Demand(
        tasks=sum(len(event.names) for event in calls if event.kind == "classical"),
        quantum_calls=len(quantum),
        circuits=sum(event.circuits or 0 for event in quantum),
        shots=sum((event.shots or 0) * (event.circuits or 1) for event in quantum),
    )


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
