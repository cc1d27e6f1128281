"""One trial: the program under a strategy in virtual time, with durations and other users as they were drawn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from qloom.errors import QloomError
from qloom.journal.event import Event
from qloom.journal.events import RunStarted
from qloom.journal.file import Journal
from qloom.journal.history import History, read_history
from qloom.journal.replay import recall
from qloom.lab.advisor.crowd import Crowd
from qloom.lab.advisor.known import Known
from qloom.ports import Durations
from qloom.runs.assembly import assemble
from qloom.runs.runner import Plan
from qloom.site import Site
from qloom.views.accounting import account
from qloom.worlds.virtual.loop import VirtualClock, run_virtual
from qloom.worlds.virtual.world import VirtualWorld

MOMENT_S = 1e-6


@dataclass(frozen=True)
class Trial:
    """What one run would cost. The turnaround is the wall time from submission to end, first wait included."""

    turnaround_s: float
    node_s: float
    qpu_s: float
    quantum_s: tuple[float, ...]  # from each quantum call to its result
    node_waits_s: tuple[float, ...]  # from each request for nodes, growth aside, to its grant
    without_duration: tuple[str, ...]  # tasks of which nobody says how long they take


def run_trial(
    plan: Plan,
    durations: Durations | None,
    crowd: Crowd,
    seed: str,
    known: Known | None = None,
    qpu_wait_s: float = 0.0,
) -> Trial:
    """Run all jobs of a plan; raises what they raise. `qpu_wait_s` is the queue of others at each quantum call."""
    cluster = replace(plan.site, broker=None, cluster_nodes=max(len(plan.site.node_names), crowd.nodes or 0))
    return run_virtual(lambda clock: _main(plan, cluster, durations, crowd, seed, known, qpu_wait_s, clock))


async def _main(
    plan: Plan,
    cluster: Site,
    durations: Durations | None,
    crowd: Crowd,
    seed: str,
    known: Known | None,
    qpu_wait_s: float,
    clock: VirtualClock,
) -> Trial:
    world = VirtualWorld(cluster, clock, durations, line=crowd.line(cluster, clock, Random(f"{seed} others")))
    clock.explain_with(world.who_waits)
    journal = Journal(None, clock)
    assert journal.events is not None  # noqa: S101  it is in memory
    journal.record(RunStarted(site=plan.site.as_dict()))
    await clock.sleep(MOMENT_S)  # who is there stands in line already
    queue_call_s = cluster.overheads.queue_call_s + qpu_wait_s
    async with assemble(world, journal, queue_call_s=queue_call_s) as assembly:
        assembly = assembly.looking_ahead(plan.strategy, lambda: known.events if known is not None else ())
        running = [assembly.start_job(plan, number) for number in range(plan.jobs)]
        ended = await asyncio.gather(*running, return_exceptions=True)
    failures = [error for error in ended if isinstance(error, BaseException)]
    if failures:
        raise next((error for error in failures if not isinstance(error, QloomError)), failures[0])
    if known is not None:
        known.remember(recall(journal.events), journal.results)
    return _figures(journal.events, tuple(world.tasks_without_expectation))


def _figures(events: list[Event], without_duration: tuple[str, ...]) -> Trial:
    history = read_history(events)
    figures = account(history)
    return Trial(
        figures.turnaround_s,
        figures.node_s_held,
        figures.qpu_s_held,
        tuple(_quantum_s(history)),
        tuple(node_waits_s(history)),
        without_duration,
    )


def node_waits_s(history: History) -> list[float]:
    """Seconds from each request for nodes, growth aside, to its grant."""
    granted = [wait for wait in history.waits if wait.is_for_new_nodes and wait.outcome == "granted"]
    return [wait.observed_us / 1e6 for wait in granted]


def _quantum_s(history: History) -> list[float]:
    """Seconds from each quantum call to its result, in the order of the results."""
    quantum = [task for task in history.run.trace.busy if task.kind == "quantum"]
    unstarted = [wait for wait in history.waits if wait.outcome == "quantum_ended"]
    ended = [(task.ended.n, task.ended.at_us - task.queued_us) for task in quantum if task.ended is not None]
    ended += [(wait.ended.n, wait.observed_us) for wait in unstarted if wait.ended is not None]
    return [took_us / 1e6 for _, took_us in sorted(ended)]


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of nothing."""
    return fmean(values) if values else 0.0
