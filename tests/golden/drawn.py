"""Programs, sites and faults that are drawn from a seed alone: the same on every machine and Python.

Lengths are uneven, so that what happens at one instant by chance does not decide anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeVar

from qloom.site import Overheads, Qpu, Site
from qloom.worlds.virtual.world import InjectedFaults

T = TypeVar("T")
Steps = list[tuple[Any, ...]]

# Written out, so that a new strategy moves no cell.
NAMES = ("coschedule", "offload", "workflow", "pertask", "vqpu", "malleable", "split", "weave")
HOLDS = ("", "+whole", "+share", "+task")
OPTIONS: dict[str, list[dict[str, float]]] = {
    "malleable": [{"min_nodes": 2}, {"patience_s": 0.4}, {"renew_patience": 1}],
    "workflow": [{"phase_nodes": 2}, {"per_task": 1}, {"spare": 1}, {"spare": 1, "nice": 1}, {"patience_s": 0.4}],
    "pertask": [{"nice": 0}, {"spare": 0}, {"per_task": 0}],
    "split": [{"lookahead": 0}],
    "weave": [
        {"per_task": 0},
        {"ask_early": 0},
        {"spare": 0},
        {"patience_s": 0.4},
        {"linger_s": 0.5},
        {"confidence": 0.9},
        {"skew": 3.0},
        {"crowded_s": 1.0},
    ],
}
SLOW = Overheads(
    submit_s=0.05, tick_s=1.0, grant_s=0.3, worker_start_s=0.2, grow_s=0.25, shrink_s=0.1, release_s=0.15,
    queue_call_s=0.02, task_s=0.03,
)  # fmt: skip
KINDS_OF_QPU = (
    (Qpu(shares=2),),
    (Qpu(shares=1),),
    (Qpu(shares=3, lanes=2),),
    (Qpu(name="a", shares=2), Qpu(name="b", shares=4)),
    (Qpu(shares=2, outages_s=((1.0, 4.0), (9.0, 20.0))),),
)


class Draw:
    """Random choices by digests: no library decides what they are."""

    def __init__(self, *seed: Any) -> None:
        self._seed = " ".join(map(str, seed))
        self._drawn = 0

    def below(self, limit: int) -> int:
        """From 0 to `limit` - 1."""
        self._drawn += 1
        drawn = hashlib.blake2b(f"{self._seed} {self._drawn}".encode(), digest_size=8).digest()
        return int.from_bytes(drawn) % limit

    def choice(self, among: Sequence[T]) -> T:
        """One of them."""
        return among[self.below(len(among))]

    def between(self, least: int, most: int) -> int:
        """A whole number."""
        return least + self.below(most - least + 1)

    def length_s(self) -> float:
        """Uneven seconds."""
        return self.choice((0.1, 0.5, 1.0, 2.5, 7.0)) + self.below(10_000) / 100_000


def program(draw: Draw, nodes: int) -> Steps:
    """Steps as `tests.simulation.harness.interpret` takes them."""
    return [_step(draw, nodes) for _ in range(draw.between(1, 5))]


def _step(draw: Draw, nodes: int) -> tuple[Any, ...]:
    kinds = (
        "classical",
        "quantum",
        "overlap",
        "behind",
        "several",
        "block",
        "speculate",
        "guess",
        "candidate",
        "abandon",
    )
    kind = draw.choice(kinds)
    match kind:
        case "quantum":
            return (kind, draw.length_s())
        case "several":
            return (kind, [draw.length_s() for _ in range(draw.between(2, 3))])
        case "candidate":
            return (kind, draw.length_s(), draw.length_s())
        case "block":
            return (kind, [_inner(draw, nodes) for _ in range(draw.between(1, 4))])
        case "classical":
            return (kind, _tasks(draw, nodes))
        case _:
            return (kind, _tasks(draw, nodes), draw.length_s())


def _inner(draw: Draw, nodes: int) -> tuple[Any, ...]:
    kind = draw.choice(("classical", "quantum", "several"))
    if kind == "classical":
        return (kind, _tasks(draw, min(2, nodes)))
    return (kind, draw.length_s()) if kind == "quantum" else (kind, [draw.length_s(), draw.length_s()])


def _tasks(draw: Draw, nodes: int) -> list[tuple[float, int]]:
    widths = (1, 1, 1, *range(1, nodes + 1))
    return [(draw.length_s(), draw.choice(widths)) for _ in range(draw.between(1, 4))]


def site(draw: Draw) -> Site:
    """A small cluster, fast or slow."""
    overhead = lambda: draw.choice((0.0, 0.0, 0.011, 0.053, 0.31))  # noqa: E731
    overheads = Overheads(
        submit_s=overhead(),
        tick_s=draw.choice((0.0, 0.0, 0.3, 1.0)),
        grant_s=overhead(),
        worker_start_s=overhead(),
        grow_s=overhead(),
        shrink_s=overhead(),
        release_s=overhead(),
        queue_call_s=overhead(),
        task_s=overhead(),
        warm_workers=draw.below(3) == 0,
    )
    nodes = draw.choice((2, 3, 3, 4))
    return Site(
        nodes=nodes,
        cluster_nodes=draw.choice((0, 0, nodes + 2)),
        qpus=draw.choice(KINDS_OF_QPU),
        overheads=overheads,
    )


def strategy(draw: Draw, nodes: int) -> tuple[str, dict[str, float]]:
    """A strategy with a hold of the QPU and, at times, an option."""
    name = draw.choice(NAMES)
    options = draw.choice([{}, {}, *OPTIONS.get(name, [])])
    return name + draw.choice(HOLDS), options


def faults(draw: Draw) -> InjectedFaults:
    """Tasks, nodes and QPUs that fail at times."""
    rates = (0.0, 0.1, 0.3)
    return InjectedFaults(draw.below(1000), draw.choice(rates), draw.choice(rates), draw.choice(rates))
