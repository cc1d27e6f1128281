"""One run: a program, a strategy, a world, K jobs at once, one journal."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from qloom.apart import run_apart, wait_apart
from qloom.broker.port import BrokerPort
from qloom.errors import InputError, QloomError, closest
from qloom.journal import home
from qloom.journal.event import Event
from qloom.journal.events import JobEnded, Resumed, RunEnded, RunStarted
from qloom.journal.file import Journal, read_events
from qloom.journal.history import read_history
from qloom.journal.queries import HANDED_ON, was_granted_anything
from qloom.journal.replay import Past, recall
from qloom.journal.results import ResultStore
from qloom.programs.load import Program, from_function, load_program
from qloom.runs.assembly import assemble
from qloom.runs.budget import QpuBudget
from qloom.runs.outcome import Outcome, notes_on
from qloom.runs.plan import ENGINES, Plan
from qloom.runs.recalibration import CalibrationWatch
from qloom.views.accounting import account
from qloom.worlds import RunContext, WorldEntry, WorldFactory, world_entry

__all__ = ["Execution", "Listener", "Outcome", "Plan", "execute", "run", "run_async"]

Listener = Callable[[Event], None]


def run(
    program: str | Program | Callable[..., Any],
    *,
    listener: Listener | None = None,
    in_memory: bool = False,
    **plan: Any,
) -> Outcome:
    """Run a program: `run(program, strategy="malleable", world="virtual", parameters={...})`.

    `program` is a function, or a text as on the command line; other arguments are the fields of `Plan`. `listener` is
    called with each event of the journal. `in_memory` leaves nothing on the disk: the journal is in the outcome's
    `events` only. Where an event loop runs already, as in a notebook, the run has its own loop in a thread.
    """
    return run_apart(lambda: execute(_plan(program, plan), listener=listener, in_memory=in_memory))


async def run_async(
    program: str | Program | Callable[..., Any],
    *,
    listener: Listener | None = None,
    in_memory: bool = False,
    **plan: Any,
) -> Outcome:
    """As `run`, while other tasks of the caller's event loop go on; `listener` is called in another thread."""
    return await wait_apart(lambda: execute(_plan(program, plan), listener=listener, in_memory=in_memory))


def _plan(program: str | Program | Callable[..., Any], plan: dict[str, Any]) -> Plan:
    known = [each.name for each in fields(Plan)][1:]
    for name in plan:
        if name not in known:
            hint = closest(name, known) or f"it has: {', '.join(known)}"
            raise InputError(f"run() has no argument {name!r}", hint=hint)
    if not isinstance(program, Program):
        program = load_program(program) if isinstance(program, str) else from_function(program)
    return Plan(program, **plan)


def execute(
    plan: Plan, *, listener: Listener | None = None, in_memory: bool = False, driver: str = "here"
) -> Outcome:
    """Carry out a plan in a new run."""
    plan.check()
    if plan.engine is not None:
        return ENGINES[plan.engine](plan, listener=listener)
    plan = plan.with_devices()
    if not in_memory:
        plan = replace(plan, parameters=json_copy(plan.parameters))
    profile = read_profile(plan.profile)
    directory = None if in_memory else home.new_run()
    start, began_us = start_event(plan)
    execution = Execution(plan, directory, listener, profile, driver=driver)
    return _discard_if_refused(execution.go(began_us, 0, 0, start, {}))


def start_event(plan: Plan) -> tuple[RunStarted, int]:
    """The first event of a journal, and when that is."""
    began_us = time.time_ns() // 1000
    start = plan.as_event()
    return (start.in_real_time(began_us) if world_entry(plan.world).real_time else start), began_us


def _discard_if_refused(outcome: Outcome) -> Outcome:
    """Remove a run whose input was refused before it held anything, so that `last` stays what it was."""
    refused = outcome.errors and all(isinstance(error, InputError) for error in outcome.errors)
    if not refused or outcome.directory is None or was_granted_anything(outcome.events):
        return outcome
    shutil.rmtree(outcome.directory, ignore_errors=True)
    return replace(outcome, directory=None)


def json_copy(parameters: dict[str, Any]) -> dict[str, Any]:
    """Copy parameters through JSON (a tuple becomes a list), so that a resumed program gets the same ones."""
    try:
        kept: dict[str, Any] = json.loads(json.dumps(parameters))
    except (TypeError, ValueError) as error:
        raise InputError(f"parameters are numbers, text, lists and dictionaries: {error}") from None
    return kept


def read_profile(name: str | None) -> Past | None:
    """The duration and the result of each piece of work of an earlier run."""
    if name is None:
        return None
    directory = home.find_run(name)
    home.require_own(directory)
    events = read_events(directory)
    jobs = list(dict.fromkeys(event.job for event in events if event.job))
    return Past({job: recall(events, job) for job in jobs}, recall(events), ResultStore(directory / "results"))


class Execution:
    """The parts of one run, put together."""

    def __init__(
        self,
        plan: Plan,
        directory: Path | None,
        listener: Listener | None,
        profile: Past | None,
        past: list[Event] | None = None,
        driver: str = "here",
    ) -> None:
        self._plan = plan
        self._directory = directory
        self._listener = listener
        self._past = past or []
        self._profile = profile
        self._entry: WorldEntry = world_entry(plan.world)
        self._errors: list[QloomError] = []
        self.may_differ = False  # a resumed program may differ from its journal
        self._driver = driver

    def go(
        self, began_us: int, at_us: int, number: int, first: RunStarted | Resumed, done: dict[str, JobEnded]
    ) -> Outcome:
        """Run all jobs that are not done."""

        async def main(factory: WorldFactory) -> tuple[list[Any], list[Event], list[str]]:
            journal = Journal(self._directory, factory.clock, durable=self._entry.real_time, first=number)
            if self._listener is not None:
                journal.listen(self._listener)
            try:
                journal.record(first, durable=True)
                with self._output() as output:
                    return await self._run_jobs(factory, journal, done, output)
            finally:
                journal.close()

        results, events, notes = self._entry.run(main, began_us, at_us)
        name = self._directory.name if self._directory is not None else "in memory"
        return Outcome(name, self._directory, results, self._errors, events, notes)

    @contextmanager
    def _output(self) -> Iterator[Path | None]:
        """Where the files of programs go: nowhere in virtual time, for a while if the run is in memory only."""
        if not self._entry.real_time:
            yield None
        elif self._directory is not None:
            yield self._directory / "output"
        else:
            with tempfile.TemporaryDirectory(prefix="qloom-") as temporary:
                yield Path(temporary) / "output"

    async def _run_jobs(
        self, factory: WorldFactory, journal: Journal, done: dict[str, JobEnded], output: Path | None
    ) -> tuple[list[Any], list[Event], list[str]]:
        plan, directory = self._plan, self._directory
        set_up = _worker_set_up(plan.program)
        world = factory.make(RunContext(plan.site, directory, set_up, self._profile, journal.record, self._driver))
        broker = await self._connect()
        results: list[Any] = []
        state = "interrupted"
        try:
            async with assemble(
                world,
                journal,
                broker,
                queue_call_s=plan.site.overheads.queue_call_s,
                past=self._past,
                directory=directory,
                output=output,
            ) as assembly:
                budget = self._budget(journal)
                watch = CalibrationWatch(journal, plan.on_recalibration, self._past)
                if self._past:
                    await watch.compare(assembly.broker)
                limits = (*((budget,) if budget is not None else ()), *((watch,) if watch.may_stop else ()))
                assembly = replace(assembly, may_differ=self.may_differ, limits=limits, has_stopped=watch.has_stopped)
                assembly = assembly.looking_ahead(plan.strategy, self._earlier)
                numbers = [number for number in range(plan.jobs) if f"j{number + 1}" not in done]
                running = [assembly.start_job(plan, number) for number in numbers]
                ended = await asyncio.gather(*running, return_exceptions=True)
                known = {int(job[1:]) - 1: journal.results.load(end.result or {}) for job, end in done.items()}
                known |= {number: self._result(end) for number, end in zip(numbers, ended, strict=True)}
                results = [known[number] for number in range(plan.jobs)]
                state = "failed" if self._errors else "done"
                if budget is not None:
                    budget.close()
        except asyncio.CancelledError:
            if world.handed_on is None:
                raise
            state = HANDED_ON  # another driver continues the run
        finally:
            handed = world.handed_on if state == HANDED_ON else None
            engine_id, reason = (handed.engine_id, handed.reason) if handed is not None else (None, None)
            journal.record(RunEnded(state=state, engine_id=engine_id, reason=reason), durable=True)
        if state == "done":
            world.require_all_free()
        events = read_events(directory) if directory is not None else self._past + (journal.events or [])
        return results, events, notes_on(world, events)

    def _budget(self, journal: Journal) -> QpuBudget | None:
        """The budget of the run, if it has one, less what was held before it was resumed."""
        if self._plan.most_qpu_s is None:
            return None
        used_s = account(read_history(self._past)).qpu_s_held if self._past else 0.0
        return QpuBudget(journal, self._plan.most_qpu_s, used_s)

    def _earlier(self) -> list[list[Event]]:
        """What strategies that look ahead learn from before this run: earlier runs of the program.

        In virtual time the only earlier run is the profile, so that a run can be repeated byte for byte.
        """
        plan = self._plan
        profile = [plan.profile] if plan.profile is not None else []
        earlier = home.runs_of(plan.program.source) if self._entry.real_time else profile
        return [*(read_events(home.find_run(name)) for name in earlier), self._past]

    async def _connect(self) -> BrokerPort | None:
        """The site's broker, if it has one."""
        site = self._plan.site
        if site.broker is None:
            return None
        from qloom.broker.client.remote import RemoteBroker

        name = self._directory.name if self._directory is not None else f"in-memory-{os.getpid()}"
        logs = self._directory / "logs" if self._directory is not None else None
        return await RemoteBroker.connect(site.broker, name, resumable=logs is not None, logs=logs)

    def _result(self, ended: Any) -> Any:
        if isinstance(ended, QloomError):
            self._errors.append(ended)
            return None
        if isinstance(ended, BaseException):
            raise ended
        return ended


def _worker_set_up(program: Program) -> dict[str, Any]:
    """What a worker is sent first: where modules are, and which one it will need."""
    preload = [program.function.__module__] if program.function.__module__ != "__main__" else []
    return {"path": [entry or os.getcwd() for entry in sys.path], "programs": program.files, "preload": preload}
