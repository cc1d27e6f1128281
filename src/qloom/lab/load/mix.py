"""Which jobs of a workload are hybrid, and what their phases look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from qloom.errors import InputError
from qloom.lab.load.workload import Hybrid, LoadJob


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
MOST_ITERATIONS = 10
MOST_PARTS = 4


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
                f"{part.strip()!r} is no part of a mix", hint=f"classical=2,balanced=1 of {', '.join(KINDS)}"
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
