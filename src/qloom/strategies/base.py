"""What strategies share: options, the verbs that most of them leave alone, and how a phase is spread over nodes.

Options are a frozen dataclass for each strategy. On the command line, in files and in journals an option is a number:
1 and 0 stand for true and false.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Generic, TypeVar, cast, get_type_hints

from qloom.errors import InputError, closest
from qloom.model import Need, QpuHold, Work
from qloom.ports import PATIENCE_S, Allocation, Cluster, Requirements

O = TypeVar("O", bound="Options")  # noqa: E741


@dataclass(frozen=True)
class Options:
    """A strategy without options; those of others are subclasses with fields of type bool, int or float."""


def part(usual: float) -> Any:
    """An option from 0 to 1."""
    return field(default=usual, metadata={"most": 1.0})


def usual_options(kind: type[Options]) -> dict[str, float]:
    """The names of the options and what they are unless somebody says otherwise."""
    return asdict(kind())


def read_options(kind: type[O], given: Mapping[str, float]) -> O:
    """The options as given; refuses names and values that they do not have."""
    if not given:
        return kind()
    known = {each.name: each for each in fields(kind)}
    types = get_type_hints(kind)
    for name in given:
        if name not in known:
            hint = f"{closest(name, list(known))} it has: {', '.join(known) or 'none'}".lstrip()
            raise InputError(f"this strategy has no option {name!r}", hint=hint)
    return kind(
        **{
            name: _read(name, types[name], value, known[name].metadata.get("most", float("inf")))
            for name, value in given.items()
        }
    )


def _read(name: str, kind: type, value: float, most: float) -> float:
    if not isinstance(value, int | float):
        raise InputError(f"option {name} is a number, not {value!r}")
    if kind is bool:
        if value not in (0, 1):
            raise InputError(f"option {name} is true or false (1 or 0), not {value:g}")
        return bool(value)
    if not 0 <= value < float("inf"):
        raise InputError(f"option {name} must be a finite number of at least 0, not {value}")
    if value > most:
        raise InputError(f"option {name} must be from 0 to {most:g}, not {value:g}")
    if kind is int:
        if value != int(value):
            raise InputError(f"option {name} must be a whole number, not {value:g}")
        return int(value)
    return float(value)


class Holding(enum.Enum):
    """How long a strategy means to keep what it asks for: users say so when they give a time limit."""

    JOB = "job"
    ITERATION = "iteration"
    PHASE = "phase"


class Strategy(Generic[O]):
    """Decides which resources a job holds, and when: begin, classical, quantum, speculate, end."""

    usual_qpu_hold: ClassVar[QpuHold] = QpuHold.TASK
    options_type: ClassVar[type[Options]] = Options
    holds: ClassVar[Holding] = Holding.JOB
    wants_forecast: ClassVar[bool] = False
    resizes: ClassVar[bool] = False  # whether a scheduler may ask it to shrink
    chains: ClassVar[bool] = False  # whether it holds nothing between phases, so that any job can do the next one

    def __init__(self, required: Requirements) -> None:
        self.options = self.read_options(required.options, required.nodes)
        self.cluster: Cluster = required.cluster
        self.nodes = required.nodes
        self.qpu_hold = required.qpu_hold or self.usual_qpu_hold

    @classmethod
    def read_options(cls, given: Mapping[str, float], nodes: int) -> O:
        """The options for a job of so many nodes; refuses what the strategy does not have."""
        return cast("O", read_options(cls.options_type, given))

    @classmethod
    def throughout(cls, nodes: int, qpu_hold: QpuHold, options: O) -> Need:
        """What a job holds from its first phase to its end; nothing, unless a strategy says so."""
        return Need()

    @property
    def patience_s(self) -> float:
        """How long the job keeps what it does not use while its work waits in line."""
        return PATIENCE_S

    async def begin(self) -> None:
        """Called before the first phase that has to run."""

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        """Run the tasks of one classical phase; results in the order of the tasks."""
        raise TypeError(f"{type(self).__name__} does not say how to run a classical phase")

    def quantum(self) -> AbstractAsyncContextManager[None]:
        """A quantum block: what is held while it is open is used by its tasks. Never nested."""
        raise TypeError(f"{type(self).__name__} does not say how to hold a QPU")

    async def speculate(self, tasks: Sequence[Work]) -> None:
        """Take note of work that may be of use later, of one node each: it runs on nodes that are held anyway."""
        self.cluster.fill_idle_nodes(tasks)

    async def end(self) -> None:
        """Give everything back. Called once, also after a failure, even if `begin` was not."""

    async def allocate(self, need: Need) -> Allocation:
        """Wait in line, however long it takes; what the job does not use meanwhile it gives back after a while."""
        granted = await self.cluster.allocate(need)
        assert granted is not None, "an allocation without a time limit is granted or cancelled"  # noqa: S101
        return granted

    def nodes_for(self, tasks: Sequence[Work]) -> int:
        """As many nodes as the tasks can use at once, and no more than the job may hold."""
        return min(self.nodes, sum(work.task.nodes for work in tasks))


def spread(tasks: Sequence[Work], held: Allocation) -> Coroutine[Any, Any, list[Any]]:
    """Put tasks on the nodes of an allocation, longest expected first; await the results in the order of the tasks.

    The allocation has taken the work on when this returns. One failure ends the phase.
    """
    longest_first = sorted(tasks, key=lambda work: -(work.task.expected_s or 0.0))
    runs = {work.id: held.run(work) for work in longest_first}
    return results([runs[work.id] for work in tasks])


async def results(runs: list[asyncio.Future[Any]]) -> list[Any]:
    """Wait for all; one failure ends the others."""
    if len(runs) == 1:
        return [await runs[0]]
    try:
        if (failed := await _all_done(runs)) is not None:
            failed.result()  # raises
        return [run.result() for run in runs]
    finally:
        for run in runs:
            run.cancel()


def _all_done(runs: list[asyncio.Future[Any]]) -> asyncio.Future[asyncio.Future[Any] | None]:
    """Wait until all of these are done, or one has failed or was cancelled: then that one is the result."""
    waiter: asyncio.Future[asyncio.Future[Any] | None] = asyncio.get_running_loop().create_future()
    left = len(runs)

    def ended(run: asyncio.Future[Any]) -> None:
        nonlocal left
        left -= 1
        failed = run.cancelled() or run.exception() is not None
        if (failed or not left) and not waiter.done():
            waiter.set_result(run if failed else None)

    for run in runs:
        run.add_done_callback(ended)
    if not runs:
        waiter.set_result(None)
    return waiter
