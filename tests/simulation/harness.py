"""Random hybrid programs in virtual time, with overheads, faults and cancellation at any moment."""

from __future__ import annotations

import asyncio
from typing import Any

from qloom.model import call, task
from qloom.payloads.adapt import delay
from qloom.programs.load import Program
from qloom.runs.runner import Plan
from qloom.site import Site
from qloom.testing.simulation import Simulation
from qloom.testing.simulation import simulate as simulate_plans
from qloom.worlds.virtual.world import InjectedFaults

__all__ = ["Simulation", "compute", "interpret", "interpret_step", "simulate", "simulate_plans", "tasks_of"]


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


def simulate(
    programs: list[list[tuple[Any, ...]]],
    strategies: list[str],
    site: Site,
    *,
    faults: InjectedFaults | None = None,
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
