"""A workload: jobs with a size, a time and an arrival, some of them hybrid.

Jobs arrive as in their trace, at random (Poisson), or from users who wait for their last job. A trace without time
limits gets those that users would ask for: the run time times a factor drawn evenly from 1 to 5 (Mu'alem and
Feitelson 2001 use the same range to study wrong estimates), rounded up to one of the few values that people write
(Tsafrir, Etsion and Feitelson 2005).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from qloom.errors import InputError

ARRIVALS = ("trace", "poisson", "closed")
MOST_ITERATIONS = 10
MOST_PARTS = 4
LARGEST_FACTOR = 5.0


@dataclass(frozen=True)
class Hybrid:
    """The phases of a hybrid job: `iterations` times classical work in `parts` tasks, then a quantum task."""

    iterations: int
    classical_s: float  # of one iteration, on all nodes of the job
    quantum_s: float  # of one iteration
    parts: int = 1  # tasks of a classical phase, on nodes / parts nodes each
    speculate: float = 0.0  # chance that work offered during the quantum phase is what comes next; 0: none is offered
    strategy: str | None = None  # None: the one of the run

    @property
    def run_s(self) -> float:
        """How long the job takes if it waits for nothing."""
        return self.iterations * (self.classical_s + self.quantum_s)


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One job of a workload, as a trace has it."""

    number: int
    submit_s: float
    run_s: float
    nodes: int
    limit_s: float
    project: int = 0
    partition: int = 0  # the first, the second, ... of the cluster
    gres: tuple[tuple[str, int], ...] = ()
    hybrid: Hybrid | None = None

    def at(self, submit_s: float) -> LoadJob:
        """The same job, submitted at another time."""
        return LoadJob(
            self.number, submit_s, self.run_s, self.nodes, self.limit_s,
            self.project, self.partition, self.gres, self.hybrid,
        )  # fmt: skip


def work_node_s(jobs: list[LoadJob]) -> float:
    """Node-seconds that the jobs would use if none of them waited."""
    return sum(job.nodes * job.run_s for job in jobs)


def check_arrivals(name: str) -> None:
    """Raises unless arrivals of this name exist."""
    if name not in ARRIVALS:
        raise InputError(f"unknown arrivals {name!r}", hint=f"choose one of {', '.join(ARRIVALS)}")


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


@dataclass(frozen=True)
class Kind:
    """A kind of hybrid program: which share of its time is quantum, and how long one iteration takes."""

    quantum: float
    iteration_s: float
    speculate: float = 0.0


KINDS = {
    "classical": Kind(0.05, 300.0),  # classical phases much longer: short circuits on a superconducting QPU
    "balanced": Kind(0.5, 600.0),
    "quantum": Kind(0.9, 1800.0),  # quantum phases much longer: neutral atoms
    "guessing": Kind(0.5, 600.0, speculate=0.5),  # half of the work that is begun early turns out to be needed
}


def parse_mix(text: str) -> dict[str, float]:
    """`classical=2,balanced=1`: kinds and their weights; a kind alone has weight 1."""
    mix: dict[str, float] = {}
    for part in text.split(","):
        name, equals, weight = part.strip().partition("=")
        try:
            mix[name] = float(weight) if equals else 1.0
        except ValueError:
            mix[name] = -1.0
        if name not in KINDS or not 0 < mix[name] < float("inf"):
            raise InputError(
                f"{part.strip()!r} is not part of a mix", hint=f"classical=2,balanced=1 of {', '.join(KINDS)}"
            )
    return mix


def with_hybrid(
    jobs: list[LoadJob],
    share: float,
    mix: Mapping[str, float],
    rng: Random,
    longest_s: float = float("inf"),
    largest: int | None = None,
) -> list[LoadJob]:
    """Make a share of the jobs hybrid, drawn at random among those of at most `longest_s` and `largest` nodes.

    A job keeps its nodes, its limit and, alone on the machine, its run time: that is what is split into phases.
    """
    if not 0 <= share <= 1:
        raise InputError(f"the share of hybrid jobs is between 0 and 100 %, not {share:.0%}")
    most_nodes = largest or max(job.nodes for job in jobs)
    fitting = [
        place
        for place, job in enumerate(jobs)
        if job.run_s <= longest_s and job.nodes <= most_nodes and not job.gres and job.hybrid is None
    ]
    wanted = round(share * len(jobs))
    if wanted > len(fitting):
        raise InputError(
            f"{wanted} jobs should be hybrid and {len(fitting)} are short and small enough", hint="--hybrid-longest"
        )
    made = list(jobs)
    names, weights = list(mix), list(mix.values())
    for place in sorted(rng.sample(fitting, wanted)):
        kind = KINDS[rng.choices(names, weights)[0]]
        made[place] = replace(jobs[place], hybrid=_phases(jobs[place], kind), partition=0)
    return made


def _phases(job: LoadJob, kind: Kind) -> Hybrid:
    iterations = max(1, min(MOST_ITERATIONS, round(job.run_s / kind.iteration_s)))
    one_s = job.run_s / iterations
    return Hybrid(
        iterations,
        round(one_s * (1 - kind.quantum), 6),
        round(one_s * kind.quantum, 6),
        min(MOST_PARTS, job.nodes),
        kind.speculate,
    )


USUAL_LIMITS_S = tuple(
    60 * minutes for minutes in (5, 10, 15, 20, 30, 60, 120, 180, 240, 360, 480, 720, 1440, 2880, 5760, 10080)
)


def estimate_s(run_s: float, rng: Random) -> float:
    """A time limit for a job of this length; never shorter than the job."""
    wanted_s = run_s * rng.uniform(1.0, LARGEST_FACTOR)
    place = bisect_left(USUAL_LIMITS_S, wanted_s)
    return float(USUAL_LIMITS_S[place]) if place < len(USUAL_LIMITS_S) else float(round(wanted_s))
