"""Random hybrid programs in virtual time, with overheads, faults and cancellation at any moment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from qloom.broker.inprocess import InProcessBroker
from qloom.errors import QloomError
from qloom.journal.event import Event
from qloom.journal.events import RunStarted
from qloom.journal.file import Journal
from qloom.journal.results import ResultStore
from qloom.model import call, task
from qloom.payloads.adapt import delay
from qloom.programs.load import Program
from qloom.runs.assembly import assemble
from qloom.runs.runner import Plan
from qloom.site import Site
from qloom.worlds.virtual.loop import run_virtual
from qloom.worlds.virtual.world import Faults, VirtualWorld

LIMIT_S = 10_000.0  # of virtual time, far longer than any of the programs takes


@task(expected_s=lambda seconds, *_: seconds)
def compute(seconds: float, *identity: Any) -> tuple[float, ...]:
    """A deterministic result that names its arguments."""
    return (seconds, *identity)


def tasks_of(step: tuple[Any, ...], place: tuple[int, ...]) -> list[Any]:
    """Tasks of a step `(kind, [(seconds, nodes), ...])`; the place makes their content differ."""
    return [compute(seconds, *place, part).needs(nodes=nodes) for part, (seconds, nodes) in enumerate(step[1])]


async def interpret(job: Any, steps: list[tuple[Any, ...]] = ()) -> list[Any]:  # type: ignore[assignment]
    """Run a program that is given as data; returns everything that it was told."""
    seen: list[Any] = []
    for number, step in enumerate(steps):
        seen.append(await interpret_step(job, step, (number,)))
    return seen


async def interpret_step(job: Any, step: tuple[Any, ...], place: tuple[int, ...]) -> Any:
    match step[0]:
        case "classical":
            return await job.classical(*tasks_of(step, place))
        case "quantum":
            return await job.quantum(delay(step[1], place))
        case "overlap":  # required classical work goes on while a quantum task is out
            answer = job.quantum(delay(step[2], place))
            worked = await job.classical(*tasks_of(step, place))
            return [worked, await answer]
        case "behind":  # a quantum task is sent while classical work runs
            work = job.classical(*tasks_of(step, place))
            answer = await job.quantum(delay(step[2], place))
            return [answer, await work]
        case "several":
            return await asyncio.gather(
                *(job.quantum(delay(seconds, (*place, number))) for number, seconds in enumerate(step[1]))
            )
        case "block":
            async with job.quantum_block():
                return [await interpret_step(job, inner, (*place, n)) for n, inner in enumerate(step[1])]
        case "speculate":
            job.speculate(*tasks_of(step, place))
            answer = await job.quantum(delay(step[2], place))
            return [answer, await job.classical(*tasks_of(step, place))]
        case "guess":  # what is begun early is never asked for
            job.speculate(*tasks_of(step, place))
            return await job.quantum(delay(step[2], place))
        case "candidate":
            stand_in = call(compute, step[2], *place).needs(expected_s=step[2])
            await job.quantum(delay(step[1]), or_classical=stand_in)
            return None  # which of the two ran depends on the load
        case "abandon":  # started, then no longer wanted
            work = job.classical(*tasks_of(step, place))
            await job.quantum(delay(step[2]))
            work.cancel()
            return None
    raise AssertionError(step)


@dataclass
class Simulation:
    """What came of it: a result or an error per job, and the journal."""

    outcomes: list[Any] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    kept: ResultStore = field(default_factory=lambda: ResultStore(None))


def simulate(
    programs: list[list[tuple[Any, ...]]],
    strategies: list[str],
    site: Site,
    *,
    faults: Faults | None = None,
    cancel_at_s: dict[int, float] | None = None,
) -> Simulation:
    """Run one job per program, all at once, and require that nothing is left behind."""
    plans = [
        Plan(
            Program("interpret", interpret),
            {"steps": steps},
            strategy=strategies[number % len(strategies)],
            world="virtual",
            site=site,
        )
        for number, steps in enumerate(programs)
    ]
    return simulate_plans(plans, site, faults=faults, cancel_at_s=cancel_at_s)


def simulate_plans(
    plans: list[Plan],
    site: Site,
    *,
    faults: Faults | None = None,
    cancel_at_s: dict[int, float] | None = None,
) -> Simulation:
    """Run one job per plan, all at once, and require that nothing is left behind."""

    async def main(clock: Any) -> Simulation:
        journal = Journal(None, clock)
        world = VirtualWorld(site, clock, faults=faults or Faults())
        broker = InProcessBroker(world.devices, clock, site.overheads.queue_call_s)
        clock.explain_with(lambda: [*world.who_waits(), *broker.who_waits()])
        clock.limit(LIMIT_S)
        journal.record(RunStarted(version=1))
        async with assemble(world, journal, broker) as assembly:
            assembly = assembly.looking_ahead(",".join(plan.strategy for plan in plans))
            runs = [assembly.start_job(plan, number) for number, plan in enumerate(plans)]
            for number, at_s in (cancel_at_s or {}).items():
                asyncio.get_running_loop().call_later(at_s, runs[number].cancel)
            outcomes = await asyncio.gather(*runs, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, QloomError | asyncio.CancelledError):
                raise outcome
        world.require_all_free()
        assert broker.core.is_idle(), "the broker still has tasks or sessions"
        return Simulation(list(outcomes), journal.events or [], journal.results)

    simulation: Simulation = run_virtual(main)
    return simulation
