"""The loop of the QCE25 paper as it is compared: two jobs, three nodes, one QPU, in virtual time.

Its lengths follow from the published cells: 532 s of critical path in four iterations with a short quantum phase,
1,091 node-seconds in the eight iterations of two jobs, and a hierarchical clustering of about 77 s. The loop ends by
its score, which it cannot know before, so the clusterings of a fifth iteration are offered too, and wasted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from qloom import Job, delay, task
from qloom.errors import QuantumFailed
from qloom.journal.event import Event
from qloom.journal.history import read_history
from qloom.programs.load import Program
from qloom.runs.runner import Plan
from qloom.site import Overheads, Qpu, Site
from qloom.views.accounting import account
from qloom.worlds.virtual.world import InjectedFaults
from tests.journals import as_lines
from tests.simulation.harness import simulate_plans

ITERATIONS = 4
PUBLISHED_S = (77.0, 2.0, 1.4)
EQUAL_S = (77.0, 77.0, 77.0)
SCORE_S = 56.0

# Slurm as measured on one machine: the scheduler's tick, and what a lease, a worker and a task cost.
SLURM = Overheads(
    tick_s=1.0, grant_s=0.03, worker_start_s=0.10, grow_s=0.03, shrink_s=0.03, release_s=0.05, task_s=0.001
)
# The same with the paper's costs: HyperQueue 1.3 s a call, mpirun 1.7 s, an expand 2 s.
PAPER = Overheads(
    tick_s=1.0, grant_s=0.03, worker_start_s=1.7, grow_s=2.0, shrink_s=0.03, release_s=0.05, queue_call_s=1.3
)
# And with the gap that its workflow has before each step: nodes take 5.4 s to come.
SLOW = replace(PAPER, submit_s=5.4)


@task(expected_s=lambda seconds, iteration: seconds)
def hierarchical(seconds: float, iteration: int) -> float:
    return seconds + iteration


@task(expected_s=lambda seconds, iteration: seconds)
def kmeans(seconds: float, iteration: int) -> float:
    return seconds + iteration


@task(expected_s=lambda seconds, iteration: seconds)
def dbscan(seconds: float, iteration: int) -> float:
    return seconds + iteration


@task(expected_s=SCORE_S)
def silhouette(iteration: int, total: float) -> float:
    return total / (1 + iteration)


async def loop(
    job: Job, *, clusterings_s: Any = PUBLISHED_S, quantum_s: float = 120.0, speculate: bool = True
) -> float:
    """The paper's loop; a quantum task that fails is sent again."""

    def clusterings(iteration: int) -> list[Any]:
        kinds = (hierarchical, kmeans, dbscan)
        return [kind(seconds, iteration) for kind, seconds in zip(kinds, clusterings_s, strict=True)]

    best = 0.0
    for iteration in range(ITERATIONS):
        labels = await job.classical(*clusterings(iteration))
        if speculate:
            job.speculate(*clusterings(iteration + 1))
        await _solve(job, quantum_s)
        (score,) = await job.classical(silhouette(iteration, sum(labels)))
        best = max(best, score)
    return best


async def _solve(job: Job, quantum_s: float) -> None:
    while True:
        try:
            await job.quantum(delay(quantum_s))
        except QuantumFailed:
            continue
        return


@dataclass(frozen=True)
class Figures:
    """What one cell comes to; `wasted_node_s` is spare work that nobody asked for, also part of `node_s`."""

    wall_s: float
    node_s: float
    wasted_node_s: float
    leases: int  # of nodes
    results: tuple[float, ...]


def measure(
    strategy: str,
    *,
    options: dict[str, float] | None = None,
    lanes: int = 1,
    overheads: Overheads = SLURM,
    jobs: int = 2,
    faults: InjectedFaults | None = None,
    **parameters: Any,
) -> Figures:
    """Run the loop under one strategy."""
    site = Site(nodes=3, qpus=(Qpu(lanes=lanes),), overheads=overheads)
    plan = Plan(Program("loop", loop), parameters, strategy, options or {}, "virtual", site)
    ended = simulate_plans([plan] * jobs, site, faults=faults)
    for outcome in ended.outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return figures_of(ended.events, ended.outcomes)


def figures_of(events: list[Event], results: list[float]) -> Figures:
    """The figures of a journal."""
    used = account(read_history(events))
    leases = sum(event["event"] == "granted" and len(event["nodes"]) > 0 for event in as_lines(events))
    return Figures(used.wall_s, used.node_s_held, wasted_node_s(events), leases, tuple(results))


def wasted_node_s(events: list[Event]) -> float:
    """Node-seconds of spare work that nobody asked for."""
    claimed = {(event["job"], event["work"]): True for event in as_lines(events) if event["event"] == "claimed"}
    began: dict[tuple[str, str], tuple[int, int]] = {}
    wasted_us = 0
    for event in as_lines(events):
        if event["event"] == "task_started" and event.get("spare"):
            began[event["job"], event["work"]] = (event["at_us"], len(event["nodes"]))
        elif event["event"] == "task_ended" and (key := (event["job"], event["work"])) in began:
            since_us, nodes = began.pop(key)
            if key not in claimed or event["state"] != "done":
                wasted_us += nodes * (event["at_us"] - since_us)
    return wasted_us / 1e6


CASES: dict[str, tuple[dict[str, Any], int]] = {
    "2 min, exclusive QPU": ({"quantum_s": 120.0}, 1),
    "2 min, two-job QPU": ({"quantum_s": 120.0}, 2),
    "short": ({"quantum_s": 0.3}, 1),
}
RIVALS: dict[str, tuple[str, dict[str, float]]] = {
    "workflow": ("workflow", {"spare": 1}),
    "the same, spare work waits": ("workflow", {"spare": 1, "nice": 1}),
    "pertask": ("pertask", {}),
    "the same, whole QPU": ("pertask+whole", {}),
    "the same, spare work does not wait": ("pertask+whole", {"nice": 0}),
    "malleable": ("malleable", {}),
    "weave": ("weave", {}),
}
ABLATION: dict[str, tuple[str, dict[str, float]]] = {
    "weave": ("weave", {}),
    "nodes held until the phase ends": ("weave", {"per_task": 0}),
    "nodes asked for when needed": ("weave", {"ask_early": 0}),
    "no spare work": ("weave", {"spare": 0}),
    "whole QPU instead of a share": ("weave+whole", {}),
}
