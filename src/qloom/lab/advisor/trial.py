"""One trial: the program under a strategy in virtual time, with durations and other users as they were drawn.

The journal of a run, replayed in trials under other strategies with nothing computed, gives what these would have
cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean

from qloom.errors import QloomError
from qloom.journal.event import Event
from qloom.journal.events import RunStarted
from qloom.journal.file import Journal, ended_as, start_of
from qloom.journal.history import History, read_history
from qloom.journal.replay import Past, recall
from qloom.lab.advisor.crowd import Crowd, Waits
from qloom.lab.advisor.known import Known, Replayed
from qloom.runs.assembly import assemble
from qloom.runs.plan import Plan, plan_of
from qloom.runs.runner import read_profile
from qloom.site import Site
from qloom.strategies import STRATEGIES
from qloom.views.accounting import account
from qloom.views.summary import human_s
from qloom.world import Durations
from qloom.worlds.virtual.loop import VirtualClock, run_virtual
from qloom.worlds.virtual.world import VirtualWorld

MOMENT_S = 1e-6
MOST_EVENTS = 5000  # a longer journal is not replayed in passing
WORTH = 0.01  # a smaller difference is none


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
    listener: Callable[[Event], None] | None = None,
) -> Trial:
    """Run all jobs of a plan; raises what they raise. `qpu_wait_s` is the queue of others at each quantum call.

    `listener` is given the events of the trial.
    """
    cluster = replace(plan.site, broker=None, cluster_nodes=max(len(plan.site.node_names), crowd.nodes or 0))
    return run_virtual(lambda clock: _main(plan, cluster, durations, crowd, seed, known, qpu_wait_s, listener, clock))


async def _main(
    plan: Plan,
    cluster: Site,
    durations: Durations | None,
    crowd: Crowd,
    seed: str,
    known: Known | None,
    qpu_wait_s: float,
    listener: Callable[[Event], None] | None,
    clock: VirtualClock,
) -> Trial:
    world = VirtualWorld(cluster, clock, durations, line=crowd.line(cluster, clock, Random(f"{seed} others")))
    clock.explain_with(world.who_waits)
    journal = Journal(None, clock)
    assert journal.events is not None  # noqa: S101  it is in memory
    if listener is not None:
        journal.listen(listener)
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


@dataclass(frozen=True)
class Instead:
    """A run replayed as it was, and under the strategy that costs least."""

    own: Trial
    strategy: str
    best: Trial
    cheaper: float  # as a part of the run's own cost

    def __str__(self) -> str:
        if self.cheaper < WORTH:
            return "replayed in virtual time, no other strategy costs less"
        return (
            f"replayed in virtual time, this run takes {human_s(self.own.turnaround_s)} and {self.own.node_s:.1f} "
            f"node-seconds, {self.strategy} {human_s(self.best.turnaround_s)} and {self.best.node_s:.1f}: "
            f"{self.cheaper:.0%} less cost"
        )


def instead(events: list[Event], directory: Path) -> Instead | None:
    """Estimate the cost under another strategy, or None if that would take too long."""
    if ended_as(events) != "done" or len(events) > MOST_EVENTS or "," in start_of(events).strategy:
        return None
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return _replay(events, plan_of(events, directory.name), read_profile(str(directory)))
    except (Exception, SystemExit):  # the program is the user's: it may be gone, changed, or do anything
        return None


def _replay(events: list[Event], plan: Plan, past: Past | None) -> Instead | None:
    if past is None or (plan.program.digest and plan.program.digest != start_of(events).program_digest):
        return None
    on_slurm = plan.world == "slurm"  # elsewhere nobody else is there, and the jobs wait for each other again
    crowd = Waits(mean(node_waits_s(read_history(events))) if on_slurm else 0.0, drawn=False)
    known = Known(events=[events])
    trials: dict[str, Trial] = {}
    for strategy in dict.fromkeys((plan.strategy, *STRATEGIES.built_in)):
        options = plan.options if strategy == plan.strategy else {}
        variant = replace(plan, strategy=strategy, options=options, world="virtual", profile=None)
        with contextlib.suppress(QloomError):
            trials[strategy] = run_trial(variant, Replayed(past), crowd, "replay", known)
    own = trials[plan.strategy]
    value = plan.site.nodes * plan.jobs

    def cost(strategy: str) -> float:
        return value * trials[strategy].turnaround_s + trials[strategy].node_s

    best = min(trials, key=cost)
    return Instead(own, best, trials[best], 1 - cost(best) / max(1e-9, cost(plan.strategy)))
