"""`qloom run PROGRAM --strategy workflow --engine streamflow`: the exported workflow, with qloom's journal.

StreamFlow runs the steps. What they computed is found again by its content, so that the program itself, replayed over
it, gives the result: the same as if the built-in engine had run it, or an error if a step computed something else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qloom.aio import TaskScope
from qloom.broker.port import BrokerPort, Session
from qloom.device import Description
from qloom.errors import InputError, JobError, QloomError
from qloom.export.flow import COMPUTE, ONE_NODE, QUANTUM
from qloom.export.folder import write_cwl
from qloom.export.places import USUAL, Places
from qloom.export.programs import flow_of
from qloom.export.records import FOLDER, OUTPUT
from qloom.journal import home
from qloom.journal.events import JobEnded, JobSubmitted, RunEnded
from qloom.journal.file import Journal, Recorder, ReplayedClock, read_events
from qloom.model import Payload, QpuHold, QuantumWork, Task, Work
from qloom.runs.assembly import Assembly
from qloom.runs.runner import Listener, Outcome, Plan
from qloom.site import Site
from qloom.slurm.arguments import gres_of
from qloom.streamflow.process import find_streamflow, run_streamflow, step_environment, write_own_crate
from qloom.streamflow.translate import Translator
from qloom.world import Clock, Lease, Ran, Request, World
from qloom.worlds import world_entry

NOT_PASSED_ON = ("arguments", "licences", "python", "most_node_hours", "most_qpu_s")


def execute(plan: Plan, *, listener: Listener | None = None) -> Outcome:
    """Carry out a plan by StreamFlow, in a new run."""
    plan = replace(plan, engine="streamflow")
    _check(plan)
    streamflow = find_streamflow()
    plan.check()
    plan = plan.with_devices()
    flow_of(plan.program.source, plan.parameters, plan.seed)  # refuses, before anything is written
    directory = home.new_run()
    run = _StreamFlowRun(plan, directory, streamflow, listener)
    return world_entry(plan.world).run(lambda factory: run.go(factory.clock), time.time_ns() // 1000, 0)


def _check(plan: Plan) -> None:
    if plan.strategy != "workflow":
        raise InputError(
            f"StreamFlow holds nothing between steps: it cannot run {plan.strategy}", hint="--strategy workflow"
        )
    if plan.world not in ("local", "slurm"):
        raise InputError(f"StreamFlow cannot run in the {plan.world} world", hint="--world local or slurm")
    said = [name for name in NOT_PASSED_ON if plan.world == "slurm" and getattr(plan.site.slurm, name)]
    if said:
        hint = "leave it out of [slurm], or let qloom run it: without --engine"
        raise InputError(f"slurm.{said[0]} cannot be passed on to StreamFlow", hint=hint)


def places_of(site: Site, world: str, folder: Path) -> Places:
    """Where the steps of a job go, in the terms of the site."""
    log = str(folder / "steps.jsonl")
    device = site.qpus[0].name if site.qpus else None
    common = {"broker": site.broker, "device": None if site.broker else device, "log": log}
    if world == "local":
        return Places("local", "broker" if site.broker else "here", nodes=site.nodes, **common)  # type: ignore[arg-type]
    slurm = site.slurm
    options = {
        "account": slurm.account,
        "qos": slurm.qos,
        "reservation": slurm.reservation,
        "constraint": slurm.constraint,
        "network": slurm.network,
        "time": slurm.time_limit,
    }
    said = {name: value for name, value in options.items() if value}
    gres = gres_of(site, device) if device is not None else slurm.gres
    nodes = {**USUAL[COMPUTE], "partition": slurm.partition, "exclusive": True, **said}
    locations = {
        COMPUTE: {name: value for name, value in nodes.items() if value != ""},
        QUANTUM: {**USUAL[QUANTUM], "partition": slurm.quantum_partition, "gres": f"{gres}:1", **said},
    }
    locations[ONE_NODE] = locations[COMPUTE]
    return Places("slurm", "broker" if site.broker else "partition", locations=locations, **common)  # type: ignore[arg-type]


class _StreamFlowRun:
    """One run: a StreamFlow process for each job, and one journal."""

    def __init__(self, plan: Plan, directory: Path, streamflow: Path, listener: Listener | None) -> None:
        self._plan = plan
        self._directory = directory
        self._streamflow = streamflow
        self._listener = listener

    async def go(self, clock: Clock) -> Outcome:
        """Run all jobs; returns their results."""
        epoch_us = time.time_ns() // 1000 - clock.now_us()
        start = self._plan.as_event().in_real_time(epoch_us)
        replayed = ReplayedClock(epoch_us)
        journal = Journal(self._directory, replayed)
        if self._listener is not None:
            journal.listen(self._listener)
        results: list[Any] = []
        errors: list[QloomError] = []
        state = "interrupted"
        try:
            journal.record(start, durable=True)
            runs = [self._job(number, journal, replayed) for number in range(self._plan.jobs)]
            for ended in await _all(runs):
                results.append(None if isinstance(ended, QloomError) else ended)
                errors += [ended] if isinstance(ended, QloomError) else []
            state = "failed" if errors else "done"
        finally:
            replayed.set(time.time_ns() // 1000)
            journal.record(RunEnded(state=state), durable=True)
            journal.close()
        return Outcome(self._directory.name, self._directory, results, errors, read_events(self._directory))

    async def _job(self, number: int, journal: Journal, replayed: ReplayedClock) -> Any:
        name = f"j{number + 1}"
        recorder = journal.recorder(name)
        replayed.set(time.time_ns() // 1000)
        recorder.record(JobSubmitted())
        folder = self._directory / "streamflow" / name
        places = places_of(self._plan.site, self._plan.world, folder)
        seed = self._plan.seed + number
        flow = flow_of(self._plan.program.source, self._plan.parameters, seed, recorded=True)
        write_cwl(folder, flow, places)
        records = self._directory / f"records-{name}"
        records.mkdir(mode=0o700)
        device = self._plan.site.qpus[0] if self._plan.site.qpus else None
        shares = 1 if self._plan.world == "slurm" else device.shares if device else 1
        usual = device.name if device else "qpu"
        log = folder / "steps.jsonl"
        translator = Translator(flow, records, log, recorder, journal.results, replayed, usual, shares)
        given = {FOLDER: str(records), OUTPUT: str((self._directory / "output" / name).resolve())}
        command = [str(self._streamflow), "run", "--name", name, "--outdir", "results", "streamflow.yml"]
        try:
            await run_streamflow(command, folder, step_environment(**given), translator.look)
            translator.write()
        except (asyncio.CancelledError, JobError) as error:
            translator.look()
            translator.write()
            replayed.set(time.time_ns() // 1000)
            state = "failed" if isinstance(error, JobError) else "interrupted"
            failure = error.as_dict() if isinstance(error, JobError) else None
            recorder.record(JobEnded(state=state, error=failure))
            if isinstance(error, JobError):
                error.job = name
            raise
        replayed.set(time.time_ns() // 1000)
        result = await self._replayed(number, journal)
        await write_own_crate(self._streamflow, folder, name, step_environment())
        return result

    async def _replayed(self, number: int, journal: Journal) -> Any:
        """The program itself over what the steps have computed: nothing is left for it to run."""
        past = read_events(self._directory)
        output = self._directory / "output"
        world = _Replayed(journal.clock, self._plan.site.node_names)
        assembly = Assembly(world, _ReplayedQpus(), journal, past, directory=self._directory, output=output)
        return await assembly.run_job(self._plan, number)


class _Replayed(World):
    """A world that runs nothing: whatever is asked of it, the workflow has left out."""

    devices = ()
    shares = MappingProxyType[str, int]({})

    def __init__(self, clock: Clock, node_names: Sequence[str]) -> None:
        self.clock = clock
        self.node_names = node_names  # whatever the program asks for, the site has

    async def grant(self, request: Request) -> Lease | None:
        """Nothing is granted, so nothing can be run, resized or given back either."""
        raise _something_else()

    async def more_nodes(self, request: Request) -> Sequence[str]:
        """Nobody has a lease."""
        raise _something_else()

    def withdraw(self, request: Request) -> None:
        """Nobody stands in line."""

    async def drop_nodes(self, lease: Lease, nodes: Sequence[str]) -> int | None:
        """Nobody has a lease."""
        raise _something_else()

    async def drop_qpu(self, lease: Lease) -> int | None:
        """Nobody has a lease."""
        raise _something_else()

    async def free(self, lease: Lease) -> int | None:
        """Nobody has a lease."""
        raise _something_else()

    async def execute(self, nodes: Sequence[str], work: Work, lease: Lease) -> Ran:
        """Nobody has a lease."""
        raise _something_else()

    def check_task(self, task: Task) -> None:
        """Any task can be recalled."""

    def require_all_free(self) -> None:
        """Nothing was held."""

    async def close(self) -> None:
        """Nothing was begun."""


class _ReplayedQpus(BrokerPort):
    """A broker that runs nothing either."""

    def choose(self, payload: Payload | None = None) -> str:
        """There is no device."""
        raise _something_else()

    def describe(self, name: str) -> Description:
        """There is no device."""
        raise _something_else()

    def takes(self, name: str, payload: Payload) -> bool:
        """There is no device."""
        raise _something_else()

    def is_up(self, name: str) -> bool:
        """There is no device."""
        raise _something_else()

    def returns(self, name: str) -> bool:
        """There is no device."""
        raise _something_else()

    def expected_wait_s(self, name: str, session: str | None = None) -> float | None:
        """There is no device."""
        raise _something_else()

    async def open_session(self, device: str, hold: QpuHold, job: str, engine_id: str | None = None) -> Session:
        """There is no device."""
        raise _something_else()

    async def run(self, work: QuantumWork, device: str, session: Session | None, recorder: Recorder) -> Any:
        """There is no device."""
        raise _something_else()

    async def close(self) -> None:
        """Nothing was begun."""


def _something_else() -> JobError:
    return JobError(
        "the workflow computed something else than the program asks for",
        hint="are qloom and its dependencies the same on all nodes?",
    )


async def _all(runs: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The results of all jobs, or their errors; if we are cancelled, so are they."""
    scope = TaskScope()
    try:
        ended = await asyncio.gather(*(scope.start(run) for run in runs), return_exceptions=True)
    finally:
        await scope.aclose()
    for result in ended:
        if isinstance(result, BaseException) and not isinstance(result, QloomError):
            raise result
    return ended
