"""What a strategy is given: a `Cluster` to ask, an `Allocation` to run work on, and a `Forecast` if it wants one.

`qloom.job` implements them once, on top of what a world supplies (`qloom.world`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from qloom.model import Need, QpuHold, Work, plain_value

PATIENCE_S = 5.0  # how long a job that waits in line keeps what it does not use, unless its strategy says otherwise


class Allocation(Protocol):
    """Nodes, and perhaps a QPU, that a job holds."""

    @property
    def nodes(self) -> Sequence[str]:
        """The nodes held now."""

    @property
    def has_grown(self) -> bool:
        """Whether the nodes held now came in several grants. Ranks of an MPI task cannot span them everywhere."""

    @property
    def busy_nodes(self) -> int:
        """How many of them run required work, or are promised to it."""

    @property
    def is_idle(self) -> bool:
        """Whether no work, spare work included, runs or waits here."""

    def run(self, work: Work) -> asyncio.Future[Any]:
        """Take a task on, to run as soon as enough nodes are idle; cancelling the future kills it."""

    async def wait_idle(self, for_s: float) -> None:
        """Wait until no work, spare work included, has run here for `for_s` seconds from now on."""

    async def grow(self, nodes: int, within_s: float, *, for_each_grant: bool = False) -> None:
        """Ask for nodes until `nodes` are held, for at most `within_s`; go on with what was granted.

        `for_each_grant`: a grant of fewer nodes than were missing starts the time anew.
        """

    async def shrink(self, nodes: int) -> None:
        """Give nodes back until `nodes` are held, but none that runs required work."""

    async def release_qpu(self) -> None:
        """Give the QPU back and keep the nodes."""

    async def release(self) -> None:
        """Give everything back once the work that it took on is done. May be called again."""

    async def __aenter__(self) -> Allocation: ...

    async def __aexit__(self, *failure: object) -> None: ...


class Cluster(Protocol):
    """The nodes and QPUs that one job can ask for."""

    async def allocate(
        self,
        need: Need,
        within_s: float | None = None,
        *,
        spare: bool = False,
        reason: str | None = None,
        after: Allocation | None = None,
    ) -> Allocation | None:
        """Wait in line for what is needed, all of it at once; `None` if it was not granted `within_s`.

        A request for `spare` work lets all others go first. The journal keeps the `reason`, if there is one. With
        `after` it has its place in line from now on, but is not eligible before all of that one was given back.
        """

    def run(self, work: Work) -> asyncio.Future[Any]:
        """Take a task on for whichever allocation of the job first has enough idle nodes, before spare work."""

    @property
    def waiting(self) -> Sequence[Work]:
        """Work that `run` took on and no node runs yet, in the order it came."""

    @property
    def spare_waiting(self) -> Sequence[Work]:
        """Spare work that no node runs yet."""

    @property
    def spare_running(self) -> int:
        """How many pieces of spare work run now."""

    def fill_idle_nodes(self, spare: Sequence[Work], *, most: int | None = None, give_way: bool = False) -> None:
        """Run these on nodes that are held but idle, on `most` of them at once; they may be dropped.

        With `give_way`, none is begun while somebody waits in line for nodes.
        """

    def drop_spare(self, nodes: int) -> None:
        """Give up spare work that nobody waits for, on this many nodes."""


@plain_value
class Prediction:
    """What is expected, and how often (0 to 1) what was seen so far lay near it."""

    value: float
    confidence: float


class Forecast(Protocol):
    """What the journals of this run and of earlier ones let one job expect; `None` where they say nothing."""

    def task_s(self, name: str) -> Prediction | None:
        """Seconds that a task of this name runs."""

    def node_wait_s(self) -> Prediction | None:
        """Seconds from a request for nodes until they can be used."""

    def average_node_wait_s(self) -> float:
        """The same over all waits that were seen, to which a few long ones add much; 0 if there was none."""

    def quantum_left_s(self) -> Prediction | None:
        """Seconds in which the quantum results that the job awaits could be there at the earliest."""

    def average_quantum_s(self) -> float:
        """Seconds from the call for a quantum result to its return, the wait for the QPU included; 0 if unseen."""

    def tasks_after_quantum(self) -> Sequence[str]:
        """Names of the tasks that the job asked for when it last had a quantum result."""

    def spare_ahead_s(self) -> Prediction | None:
        """Seconds from the offer of spare work until it is asked for."""

    def spare_use(self) -> float:
        """The share of spare work that was asked for later; 1 as long as nothing was seen."""

    def scaled(self, by: float) -> Forecast:
        """The same with every time multiplied, to try what wrong predictions cost."""


@dataclass(frozen=True)
class Requirements:
    """What a strategy knows when it is made."""

    cluster: Cluster
    nodes: int  # the most nodes that the job may hold
    qpu_hold: QpuHold | None = None  # None: the strategy's usual one
    options: Mapping[str, float] = field(default_factory=dict)  # as given; the strategy reads them
    forecast: Forecast | None = None
