"""A run whose driver lives in Slurm: in the job that it works with, in a separate one, or in each job of a chain."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from qloom.errors import InputError, QloomError
from qloom.journal import home
from qloom.journal.events import JobSubmitted, RunEnded
from qloom.journal.file import Journal
from qloom.journal.queries import HANDED_ON, handed_to
from qloom.model import Need, QpuHold
from qloom.runs.runner import Plan, execute, json_copy, start_event
from qloom.site import Site
from qloom.slurm.client import Client
from qloom.slurm.facts import read_facts
from qloom.strategies import STRATEGIES, choose, parse_strategy
from qloom.world import Request
from qloom.worlds import DRIVERS
from qloom.worlds.realtime import RealClock
from qloom.worlds.slurm.driver_job import BatchJob, submit_batch

SUBMITTED = tuple(driver for driver in DRIVERS if driver != "here")


@dataclass(frozen=True)
class SubmittedRun:
    """A run that Slurm has accepted."""

    run: str
    job: str


def script(plan: Plan, driver: str, run: str = "RUN", logs: str = "logs") -> str:
    """The batch script that would be submitted."""
    batch = _batch(plan, driver, run)
    text = batch.script(plan.site, logs)
    return text if driver != "chain" else text + "# one such job for each phase, asking for what that phase needs\n"


def usual_driver(plan: Plan) -> str:
    """A chain if the strategy holds nothing between phases, so that nothing is held for a driver that waits."""
    return "chain" if parse_strategy(plan.strategy)[0].chains else "in-job"


def submit(plan: Plan, driver: str) -> SubmittedRun:
    """Submit a run. Its first job may have to wait in line; this does not."""
    if driver == "chain":
        _check(plan, driver)
        outcome = execute(plan, driver="chain")
        if outcome.errors:
            raise outcome.errors[0]
        return SubmittedRun(outcome.run, handed_to(outcome.events) or "none: there was nothing to do")
    batch = _batch(plan, driver, "")
    directory, job = _prepare(plan, lambda directory: asyncio.run(_submit(batch, plan.site, directory)))
    return SubmittedRun(directory.name, job)


def _prepare(plan: Plan, hand_on: Callable[[Path], str]) -> tuple[Path, str]:
    """A new run for a driver elsewhere; `hand_on` takes its directory and returns the Slurm job that continues it."""
    plan = replace(plan.with_devices(), parameters=json_copy(plan.parameters))
    directory = home.new_run()
    start, began_us = start_event(plan)
    journal = Journal(directory, RealClock(began_us))
    try:
        journal.record(start, durable=True)
        for number in range(plan.jobs):
            journal.recorder(f"j{number + 1}").record(JobSubmitted())
        engine_id = hand_on(directory)
        journal.record(RunEnded(state=HANDED_ON, engine_id=engine_id), durable=True)
    except QloomError:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    finally:
        journal.close()
    return directory, engine_id


async def _submit(batch: BatchJob, site: Site, directory: Path) -> str:
    (directory / "logs").mkdir(mode=0o700)
    client = Client()
    try:
        return await submit_batch(replace(batch, run=directory.name), site, directory, client)
    finally:
        client.close()


def _check(plan: Plan, driver: str) -> None:
    plan.check()
    if plan.world != "slurm":
        raise InputError(f"a run of the {plan.world} world has its driver here", hint="--world slurm")
    if driver not in SUBMITTED:
        raise InputError(f"unknown driver {driver!r}", hint=f"choose one of {', '.join(SUBMITTED)}")
    if driver == "chain" and not parse_strategy(plan.strategy)[0].chains:
        chains = [name for name, strategy in STRATEGIES.items() if strategy.chains]
        raise InputError(
            f"{plan.strategy} holds nodes from one phase to the next: it needs a driver that lives as long",
            hint=f"--driver in-job, or --strategy {' or '.join(chains)}",
        )
    if driver == "chain" and plan.jobs != 1:
        raise InputError("a chain is one job after the other", hint="leave out --jobs")


def _batch(plan: Plan, driver: str, run: str) -> BatchJob:
    """The job around the first driver: what its strategy holds throughout, or one node; beside that, a core."""
    _check(plan, driver)
    facts = read_facts(plan.site)
    if driver == "beside":
        _require_room_beside(plan.site.nodes, len(facts.nodes))
        return BatchJob(run, driver, None)
    need = held_throughout(plan)
    device = None
    if need.qpu is not QpuHold.TASK:
        device = plan.site.qpus[0].name
    shares = 0 if device is None else facts.shares[device] if need.qpu is QpuHold.WHOLE else 1
    return BatchJob(run, driver, Request("first", "j1", need.nodes, need.nodes, need.qpu, device), shares)


def _require_room_beside(most: int, nodes: int) -> None:
    """The node that a driver has a core of is not whole: on all others the job must find room."""
    if most >= nodes:
        raise InputError(
            f"a job may hold {most} nodes, and beside its driver the partition has {nodes - 1}",
            hint=f"--nodes {nodes - 1}, or --driver in-job" if nodes > 1 else "--driver in-job",
        )


def held_throughout(plan: Plan) -> Need:
    """What the strategy of a plan holds from its first phase on; a node for the driver if that is nothing."""
    need = choose(plan.strategy, plan.options, plan.site.nodes).throughout
    return Need(nodes=1) if need == Need() else need
