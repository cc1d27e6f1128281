"""One run: a program, a strategy, a world, K jobs at once, one journal."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qloom.aio import see_through
from qloom.broker.inprocess import InProcessBroker
from qloom.broker.port import BrokerPort
from qloom.errors import InputError, JobError, JournalError, QloomError
from qloom.journal import home
from qloom.journal.file import Event, Journal, await_writer, read_events
from qloom.journal.forecast import Forecaster, learn
from qloom.journal.handed import HANDED_ON, handed_to
from qloom.journal.measured import require_jobs
from qloom.journal.replay import Past, recall
from qloom.journal.results import ResultStore
from qloom.plan import Plan
from qloom.ports import Requirements
from qloom.program import Job
from qloom.programs.load import Program, from_function, load_program
from qloom.site import site_from
from qloom.strategies import make_strategy, parse_strategy
from qloom.worlds import Surroundings, WorldEntry, world_entry
from qloom.worlds.cluster import JobCluster
from qloom.worlds.qpu import JobQpu

__all__ = ["Listener", "Outcome", "Plan", "execute", "resume", "run", "run_job"]

Listener = Callable[[Event], None]
HANDING_ON_S = 30.0  # how long a driver may take to end after it has submitted the next one


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    run: str
    directory: Path | None
    results: list[Any]  # one per job; None for a job that failed
    errors: list[QloomError]
    events: list[Event]
    notes: list[str] = field(default_factory=list)

    @property
    def result(self) -> Any:
        """The result of the first job; raises if it failed."""
        if self.errors:
            raise self.errors[0]
        return self.results[0]


def run(
    program: str | Program | Callable[..., Coroutine[Any, Any, Any]],
    *,
    listener: Listener | None = None,
    in_memory: bool = False,
    **plan: Any,
) -> Outcome:
    """Run a program: `run(program, strategy="malleable", world="virtual", parameters={...})`.

    `in_memory` leaves nothing on the disk: the journal is in the outcome's `events` only.
    """
    if not isinstance(program, Program):
        program = load_program(program) if isinstance(program, str) else from_function(program)
    return execute(Plan(program, **plan), listener=listener, in_memory=in_memory)


def execute(
    plan: Plan, *, listener: Listener | None = None, in_memory: bool = False, driver: str = "here"
) -> Outcome:
    """Carry out a plan in a new run."""
    plan.check()
    if plan.engine is not None:  # it stands above this file: found by name, as worlds are
        outcome: Outcome = importlib.import_module(f"qloom.{plan.engine}.engine").execute(plan, listener=listener)
        return outcome
    plan = plan.with_devices()
    if not in_memory:
        plan = replace(plan, parameters=as_kept(plan.parameters))
    profile = read_profile(plan.profile)
    directory = None if in_memory else home.new_run()
    start, began_us = how_it_begins(plan)
    execution = _Execution(plan, directory, listener, profile, driver=driver)
    return _without_trace(execution.go(began_us, 0, 0, ("run_started", start), {}))


def how_it_begins(plan: Plan) -> tuple[dict[str, Any], int]:
    """The first event of a journal, and when that is."""
    began_us = time.time_ns() // 1000
    start = plan.as_event()
    if world_entry(plan.world).REAL_TIME:
        start["created"] = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(began_us / 1e6))
        start["epoch_us"] = began_us
        start["host"] = platform.node()
    return start, began_us


def _without_trace(outcome: Outcome) -> Outcome:
    """A run whose input was refused before it held anything leaves nothing: `last` stays what it was."""
    refused = outcome.errors and all(isinstance(error, InputError) for error in outcome.errors)
    if not refused or outcome.directory is None or any(event["event"] == "granted" for event in outcome.events):
        return outcome
    shutil.rmtree(outcome.directory, ignore_errors=True)
    return replace(outcome, directory=None)


def resume(name: str, *, listener: Listener | None = None, driver: str = "here") -> Outcome:
    """Go on with a run that was killed, interrupted or failed; what its journal holds is not run again."""
    directory = home.find_run(name)
    home.require_own(directory)
    inside = os.environ.get("SLURM_JOB_ID") if driver != "here" else None
    if inside is not None:
        await_writer(directory, HANDING_ON_S)
    events = read_events(directory)
    require_jobs(events, directory.name)
    if events[-1].get("state") == "done" and events[-1]["event"] == "run_ended":
        return _finished(directory, events)
    if (job := handed_to(events)) is not None and job != inside:
        from qloom.worlds.slurm.submitted import require_ended

        require_ended(job, directory.name)
    start, plan = events[0], plan_of(events, directory.name).with_devices()
    program = plan.program
    changed = bool(program.digest) and program.digest != start.get("program_digest")
    done = {event["job"]: event for event in events if event["event"] == "job_ended" and event["state"] == "done"}
    execution = _Execution(plan, directory, listener, read_profile(plan.profile), events, driver)
    note = ["the program's file has changed since the run began"] if changed else []
    resumed = ("resumed", {"program_changed": changed or None, "engine_id": inside})
    outcome = execution.go(start.get("epoch_us", 0), events[-1]["at_us"], events[-1]["n"] + 1, resumed, done)
    return replace(outcome, notes=note + outcome.notes)


def _finished(directory: Path, events: list[Event]) -> Outcome:
    """What came of a run that is done, as its journal has it."""
    done = {event["job"]: event["result"] for event in events if event["event"] == "job_ended" and "result" in event}
    store = ResultStore(directory / "results")
    results = [store.load(done[f"j{number + 1}"]) for number in range(events[0]["jobs"])]
    return Outcome(directory.name, directory, results, [], events, ["this run is done: nothing to resume"])


def plan_of(events: Sequence[Event], name: str) -> Plan:
    """The plan that the journal of a run begins with."""
    start = events[0]
    require_jobs(events, name)
    if not start["program"]:
        raise JournalError(f"{name} does not name its program")
    return Plan(
        load_program(start["program"]),
        parameters=start["parameters"],
        strategy=start["strategy"],
        options=start.get("options") or {},
        world=start["world"],
        site=site_from(start["site"], name),
        jobs=start["jobs"],
        seed=start["seed"],
        profile=start.get("profile"),
    )


def as_kept(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as the journal gives them back (a tuple as a list), so that a resumed program is given the same."""
    try:
        kept: dict[str, Any] = json.loads(json.dumps(parameters))
    except (TypeError, ValueError) as error:
        raise InputError(f"parameters are numbers, text, lists and dictionaries: {error}") from None
    return kept


def read_profile(name: str | None) -> Past | None:
    """How long each piece of work took in an earlier run, and what came out."""
    if name is None:
        return None
    directory = home.find_run(name)
    home.require_own(directory)
    events = read_events(directory)
    jobs = list(dict.fromkeys(event["job"] for event in events if "job" in event))
    return Past({job: recall(events, job) for job in jobs}, recall(events), ResultStore(directory / "results"))


class _Execution:
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
        self._driver = driver

    def go(
        self, began_us: int, at_us: int, number: int, first: tuple[str, dict[str, Any]], done: dict[str, Event]
    ) -> Outcome:
        """Run all jobs that are not done, and tell what came of it."""

        async def main(clock: Any) -> tuple[list[Any], list[Event], list[str]]:
            journal = Journal(self._directory, clock, durable=self._entry.REAL_TIME, first=number)
            if self._listener is not None:
                journal.listeners.append(self._listener)
            try:
                journal.record(first[0], durable=True, **first[1])
                with self._output() as output:
                    return await self._run_jobs(journal, done, output)
            finally:
                journal.close()

        results, events, notes = self._entry.execute(main, began_us, at_us)
        name = self._directory.name if self._directory is not None else "in memory"
        return Outcome(name, self._directory, results, self._errors, events, notes)

    @contextmanager
    def _output(self) -> Iterator[Path | None]:
        """Where the files of programs go: nowhere in virtual time, for a while if the run is in memory only."""
        if not self._entry.REAL_TIME:
            yield None
        elif self._directory is not None:
            yield self._directory / "output"
        else:
            with tempfile.TemporaryDirectory(prefix="qloom-") as temporary:
                yield Path(temporary) / "output"

    async def _run_jobs(
        self, journal: Journal, done: dict[str, Event], output: Path | None
    ) -> tuple[list[Any], list[Event], list[str]]:
        plan, directory = self._plan, self._directory
        set_up = _worker_set_up(plan.program)
        surroundings = Surroundings(plan.site, directory, set_up, self._profile, journal.record, self._driver)
        world = self._entry.make(surroundings, journal.clock)
        broker = await self._make_broker(world, journal.clock)
        forecaster = self._forecaster(journal)
        runs: list[asyncio.Future[Any]] = []
        results: list[Any] = []
        state = "interrupted"
        try:
            for number in range(plan.jobs):
                recorded = done.get(f"j{number + 1}")
                if recorded is not None:
                    runs.append(asyncio.get_running_loop().create_future())
                    runs[-1].set_result(journal.results.load(recorded["result"]))
                else:
                    job = run_job(
                        plan,
                        number,
                        world,
                        broker,
                        journal,
                        past=self._past,
                        directory=directory,
                        output=output,
                        forecaster=forecaster,
                    )
                    runs.append(asyncio.ensure_future(job))
            results = [self._result(ended) for ended in await asyncio.gather(*runs, return_exceptions=True)]
            state = "failed" if self._errors else "done"
        except asyncio.CancelledError:
            if getattr(world, "handed_on", None) is None:
                raise
            state = HANDED_ON  # another driver goes on with the run
        finally:
            for run in runs:
                run.cancel()
            await see_through(asyncio.gather(*runs, return_exceptions=True))
            await broker.close()
            await world.close()
            journal.record("run_ended", durable=True, state=state, engine_id=getattr(world, "handed_on", None))
        if state == "done":
            world.require_all_free()
        events = read_events(directory) if directory is not None else self._past + (journal.events or [])
        return results, events, _notes(world, events)

    def _forecaster(self, journal: Journal) -> Forecaster | None:
        """What strategies that look ahead learn from: earlier runs of the program, then this one as it goes.

        In virtual time the only earlier run is the profile, so that a run can be repeated byte for byte.
        """
        plan = self._plan
        if not any(parse_strategy(name)[0].learns for name in plan.strategy.split(",")):
            return None
        profile = [plan.profile] if plan.profile is not None else []
        earlier = home.runs_of(plan.program.source) if self._entry.REAL_TIME else profile
        return learn(journal, [*(read_events(home.find_run(name)) for name in earlier), self._past])

    async def _make_broker(self, world: Any, clock: Any) -> BrokerPort:
        site = self._plan.site
        if site.broker is None:
            return InProcessBroker(world.devices, clock, site.overheads.queue_call_s)
        from qloom.broker.remote import RemoteBroker

        name = self._directory.name if self._directory is not None else f"in-memory-{os.getpid()}"
        return await RemoteBroker.connect(site.broker, name, resumable=self._directory is not None)

    def _result(self, ended: Any) -> Any:
        if isinstance(ended, QloomError):
            self._errors.append(ended)
            return None
        if isinstance(ended, BaseException):
            raise ended
        return ended


async def run_job(
    plan: Plan,
    number: int,
    world: Any,
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
    if not any(event["event"] == "job_submitted" and event["job"] == name for event in past):
        recorder.record("job_submitted")
    job = Job(
        name,
        make_strategy(strategies[number % len(strategies)], required),
        cluster,
        JobQpu(broker, cluster, recorder),
        journal,
        recall(past, name),
        seed=plan.seed + number,
        shared_directory=None if directory is None else directory / "shared",
        output_dir=_output_directory(output, name),
    )
    try:
        result = await job.run(plan.program.call(job, plan.parameters))
        kept = recorder.keep(result)
    except asyncio.CancelledError:
        recorder.record("job_ended", state="interrupted")
        raise
    except Exception as failure:
        error = failure if isinstance(failure, QloomError) else _program_failed(failure, name)
        recorder.record("job_ended", state="failed", error=error.as_dict())
        raise error from failure
    recorder.record("job_ended", state="done", result=kept)
    return result


def _worker_set_up(program: Program) -> dict[str, Any]:
    """What a worker is told first: where modules are, and which one it will need."""
    preload = [program.function.__module__] if program.function.__module__ != "__main__" else []
    return {"path": [entry or os.getcwd() for entry in sys.path], "programs": program.files, "preload": preload}


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


def _notes(world: Any, events: list[Event]) -> list[str]:
    silent = list(getattr(world, "tasks_without_expectation", ()))
    notes = [f"no expected_s, so no virtual time, for: {', '.join(silent)}"] if silent else []
    failed = [event["error"] for event in events if event["event"] == "task_ended" and event["state"] == "failed"]
    if failed and events[-1].get("state") == "done":
        notes.append(f"{len(failed)} tasks failed and the program went on; the first: {failed[0].splitlines()[0]}")
    return notes
