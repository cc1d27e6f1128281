"""Resuming a run: what its journal holds is not run again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from qloom.apart import run_apart
from qloom.errors import InputError, closest
from qloom.journal import home, owner
from qloom.journal.event import Event
from qloom.journal.events import JobEnded, Resumed
from qloom.journal.file import await_writer, ended_as, read_events, start_of
from qloom.journal.queries import done_jobs, handed_to, require_jobs
from qloom.journal.results import ResultStore
from qloom.programs.load import from_function
from qloom.runs.outcome import Outcome, read_outcome
from qloom.runs.plan import plan_of
from qloom.runs.recalibration import require_action
from qloom.runs.runner import Execution, Listener, read_profile
from qloom.worlds import DRIVERS, world_entry

ON_DIVERGENCE = ("stop", "continue")
HANDING_ON_S = 30.0  # how long a driver may take to end after it has submitted the next one


def resume(
    name: str,
    *,
    program: Callable[..., Any] | None = None,
    listener: Listener | None = None,
    driver: str = "here",
    on_divergence: str = "stop",
    on_recalibration: str | None = None,
    most_qpu_s: float | None = None,
) -> Outcome:
    """Continue a run that was killed, interrupted or failed; what its journal holds is not run again.

    Its program makes the calls of its journal again. Where one differs, the run stops, or with `on_divergence`
    "continue" goes on from there; results that it asks for as before are still taken from the journal.
    `program` is the function again, for a run whose program was defined in a notebook. `on_recalibration` says what
    to do if a device was recalibrated since, or is while the run goes on: "warn", "stop" or "continue"; None: as the
    run was begun. `most_qpu_s` is another budget of QPU-seconds, what was held before included.
    """
    return run_apart(lambda: _resume(name, program, listener, driver, on_divergence, on_recalibration, most_qpu_s))


def _resume(
    name: str,
    program: Callable[..., Any] | None,
    listener: Listener | None,
    driver: str,
    on_divergence: str,
    on_recalibration: str | None,
    most_qpu_s: float | None,
) -> Outcome:
    if on_divergence not in ON_DIVERGENCE:
        raise InputError(
            f"unknown answer to a divergence: {on_divergence!r}", hint=f"use {' or '.join(ON_DIVERGENCE)}"
        )
    if on_recalibration is not None:
        require_action(on_recalibration)
    if driver not in DRIVERS:
        meant = f"{closest(driver, DRIVERS)} choose one of {', '.join(DRIVERS)}".lstrip()
        raise InputError(f"unknown driver {driver!r}", hint=meant)
    directory = home.find_run(name)
    home.require_own(directory)
    events = read_events(directory)
    require_jobs(events, directory.name)
    driver_jobs = world_entry(start_of(events).world).driver_jobs
    inside = driver_jobs.enclosing_job() if driver_jobs is not None and driver != "here" else None
    if driver == "in-job" and inside is None:
        raise InputError("an in-job driver is a process of a Slurm job", hint=f"qloom resume {directory.name}")
    if inside is not None:
        await_writer(directory, HANDING_ON_S)
        events = read_events(directory)
    done = _done_jobs(directory, events)
    if ended_as(events) == "done" and len(done) == start_of(events).jobs:
        return replace(read_outcome(directory, events), notes=["this run is done: nothing to resume"])
    if driver_jobs is not None and (job := handed_to(events)) is not None:
        if job != inside:
            driver_jobs.require_ended(job, directory.name)
        owner.forget(directory)  # the driver lived in that job, wherever it was
    again = None if program is None else from_function(program)
    start, plan = start_of(events), plan_of(events, directory.name, again).with_devices()
    if most_qpu_s is not None:
        plan = replace(plan, most_qpu_s=most_qpu_s)
        plan.check()
    if on_recalibration is not None:
        plan = replace(plan, on_recalibration=on_recalibration)
    digest = plan.program.digest
    changed = bool(digest) and digest != start.program_digest
    execution = Execution(plan, directory, listener, read_profile(plan.profile), events, driver)
    execution.may_differ = on_divergence == "continue"
    note = ["the program's file has changed since the run began"] if changed else []
    resumed = Resumed(
        program_changed=changed, engine_id=inside, on_recalibration=on_recalibration, most_qpu_s=most_qpu_s
    )
    outcome = execution.go(start.epoch_us or 0, events[-1].at_us, events[-1].n + 1, resumed, done)
    return replace(outcome, notes=note + outcome.notes)


def _done_jobs(directory: Path, events: list[Event]) -> dict[str, JobEnded]:
    """The jobs that are done and whose results are there: the last end of each."""
    store = ResultStore(directory / "results")
    done = done_jobs(events).items()
    return {job: event for job, event in done if event.result is not None and store.has(event.result)}
