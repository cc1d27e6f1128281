"""When jobs arrive: as in their trace, at random (Poisson), or from users who wait for their last job."""

from __future__ import annotations

from random import Random

from qloom.errors import InputError
from qloom.lab.load.workload import LoadJob, work_node_s

ARRIVALS = ("trace", "poisson", "closed")


def check_arrivals(name: str) -> None:
    """Only those that there are."""
    if name not in ARRIVALS:
        raise InputError(f"no arrivals are called {name!r}", hint=f"choose one of {', '.join(ARRIVALS)}")


def check_load(load: float) -> None:
    """A load factor is the share of the nodes that the jobs would keep busy."""
    if not 0 < load < float("inf"):
        raise InputError(f"the load factor must be above 0, not {load:g}", hint="--load 0.7 keeps 70 % of nodes busy")


def scaled(jobs: list[LoadJob], nodes: int, load: float) -> list[LoadJob]:
    """The same order and rhythm, drawn out or pressed together until the load is right."""
    first_s = jobs[0].submit_s
    factor = _span_s(jobs, nodes, load) / _span_s(jobs, nodes, None)
    return [job.at(round((job.submit_s - first_s) * factor, 6)) for job in jobs]


def poisson(jobs: list[LoadJob], nodes: int, load: float | None, rng: Random) -> list[LoadJob]:
    """The same jobs with independent gaps between them; without a load factor, at the mean rate of the trace."""
    gap_s = _span_s(jobs, nodes, load) / len(jobs)
    at_s, moved = 0.0, []
    for job in jobs:
        at_s += rng.expovariate(1 / gap_s)
        moved.append(job.at(round(at_s, 6)))
    return moved


def _span_s(jobs: list[LoadJob], nodes: int, load: float | None) -> float:
    """How long the arrivals must take for this load; None: as long as they do in the trace."""
    if load is not None:
        check_load(load)
        return work_node_s(jobs) / (nodes * load)
    span_s = jobs[-1].submit_s - jobs[0].submit_s
    if span_s <= 0:
        hint = "--arrivals poisson --load 0.7"
        raise InputError("all jobs of the trace arrive at once: it has no load factor", hint=hint)
    return span_s


def closed_loop(jobs: list[LoadJob], users: int, think_s: float, rng: Random) -> dict[int, tuple[LoadJob, float]]:
    """Dealt to users in turn: job number -> the next job of its user, and the seconds in between.

    The first job of each user is submitted at once; numbers below 0 stand for "before the first".
    """
    if users < 1 or think_s < 0:
        raise InputError(f"a closed loop needs at least one user and no negative pause, not {users} and {think_s:g}")
    follows: dict[int, tuple[LoadJob, float]] = {}
    last = {user: -1 - user for user in range(users)}
    for place, job in enumerate(jobs):
        user = place % users
        pause_s = rng.expovariate(1 / think_s) if think_s else 0.0
        follows[last[user]] = (job, pause_s)
        last[user] = job.number
    return follows
