"""What a policy is (a state in, starts and resizes out), and what policies share: one pass, FCFS, when to backfill.

A pass keeps what is left while jobs are being started, and the reservations made on the way. Under FCFS, the
simplest policy, a job that does not fit stops those behind it that want the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, ClassVar, NamedTuple

from qloom.errors import InputError
from qloom.lab.schedulers.state import FOREVER_US, Entry, Resource, State, Unstartable

Start = tuple[Entry, tuple[int, ...]]  # a job, and the amounts that it is given


class Resize(NamedTuple):
    """Ask a malleable job to hold at most `nodes` nodes; it answers at its next safe point."""

    entry: Entry
    nodes: int


class Decision(NamedTuple):
    """What a policy wants to happen now: jobs with the amounts they are given, and wishes to malleable jobs."""

    starts: Sequence[Start] = ()
    resizes: Sequence[Resize] = ()
    again_us: int = FOREVER_US  # ask again at this time, even if nothing changes until then


class Policy:
    """Decides who starts. `decide` is called at every change, and every `interval_s` to backfill.

    A policy reads the state and never changes it. One instance serves one run, and may remember what it decided.
    """

    options: ClassVar[dict[str, float]] = {"interval_s": 0.0, "depth": 0}

    def __init__(self, **options: float) -> None:
        unknown = [name for name in options if name not in self.options]
        if unknown:
            known = ", ".join(self.options) or "none"
            raise InputError(f"policy {type(self).__name__} has no option {unknown[0]!r}", hint=f"it has: {known}")
        wrong = [name for name, value in options.items() if not 0 <= value < float("inf")]
        if wrong:
            raise InputError(f"option {wrong[0]} must be a finite number of at least 0, not {options[wrong[0]]}")
        settings = {**self.options, **options}
        self.interval_s = settings.get("interval_s", 0.0)  # 0: every change is a backfill pass
        self.depth = int(settings.get("depth", 0))  # how many waiting jobs a backfill pass looks at; 0: all

    def decide(self, state: State) -> Decision:
        """Which jobs start now. Must not change the state."""
        raise TypeError(f"{type(self).__name__} does not say what starts")


def checked_amounts(entry: Entry, given: Any) -> tuple[int, ...]:
    """The amounts that a policy gives a job, if it may: a rigid one what it asks for, an expander up to its most."""
    try:
        amounts = tuple(map(index, given))
    except TypeError:
        amounts = ()
    if len(amounts) != len(entry.amounts):
        raise Unstartable(f"gives job {entry.id} {given!r}, which is not one whole number for each resource")
    most = (max(entry.most_nodes, entry.amounts[0]), *entry.amounts[1:])
    for resource, least, amount, limit in zip(entry.line.resources, entry.amounts, amounts, most, strict=True):
        if not least <= amount <= limit:
            wanted = f"{least}" if least == limit else f"{least} to {limit}"
            raise Unstartable(f"starts job {entry.id} with {resource.name}={amount} instead of {wanted}")
    return amounts


def virtual_time(now_us: int) -> str:
    """When something happened, as errors say it."""
    return f"at {f'{now_us / 1e6:,.6f}'.rstrip('0').rstrip('.')} s of virtual time"


NOTHING = Decision()


class Pass:
    """Free amounts and reservations by resource. Within a pass both only get tighter."""

    __slots__ = ("_started", "extra", "free", "shadow_us", "starts", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.starts: list[Start] = []
        self.free = [resource.free for resource in state.resources.values()]
        self.shadow_us = [FOREVER_US] * len(self.free)  # until when a resource may be used freely
        self.extra = list(self.free)  # how much of it may be used beyond that
        self._started: dict[int, list[tuple[int, int, int]]] = {}  # ends of who was started, by resource

    def admit(self, entry: Entry) -> bool:
        """Start a job if it fits now and delays no reservation."""
        if entry.needs_pass and not self.state.backfill:
            return False
        end_us = self.state.now_us + entry.limit_us
        free, extra, shadow_us = self.free, self.extra, self.shadow_us
        resources = entry.line.resources
        for resource, amount in zip(resources, entry.amounts, strict=True):
            index = resource.index
            if amount > free[index] or (amount > extra[index] and end_us > shadow_us[index]):
                return False
        amounts = entry.amounts if entry.most_nodes <= entry.amounts[0] else self._most(entry, end_us)
        for resource, amount in zip(resources, amounts, strict=True):
            index = resource.index
            free[index] -= amount
            if end_us > shadow_us[index]:
                extra[index] -= amount
            self._started.setdefault(index, []).append((end_us, entry.order, amount))
        self.starts.append((entry, amounts))
        return True

    def _most(self, entry: Entry, end_us: int) -> tuple[int, ...]:
        """An expander takes up to `most_nodes`, as far as it delays nobody."""
        index = entry.line.resources[0].index
        room = self.free[index]
        if end_us > self.shadow_us[index]:
            room = min(room, self.extra[index])
        return (min(entry.most_nodes, room), *entry.amounts[1:])

    def is_reserved(self, entry: Entry) -> bool:
        """Whether somebody before it has a reservation on something that it wants."""
        for resource in entry.line.resources:  # noqa: SIM110  a generator would cost more than the rest of the pass
            if self.shadow_us[resource.index] != FOREVER_US:
                return True
        return False

    def reserve(self, entry: Entry) -> None:
        """Find when the job can start at the latest, and protect that."""
        resources = entry.line.resources
        wanted = list(zip(resources, entry.amounts, strict=True))
        shadow_us = max(self._available_us(resource, amount) for resource, amount in wanted)
        for resource, amount in wanted:
            index = resource.index
            self.shadow_us[index] = shadow_us
            self.extra[index] = self.free[index] - amount
            for end_us, _order, freed in self._ends(resource):
                if end_us > shadow_us:
                    break
                self.extra[index] += freed

    def _available_us(self, resource: Resource, amount: int) -> int:
        available = self.free[resource.index]
        if available >= amount:
            return self.state.now_us
        for end_us, _order, freed in self._ends(resource):
            available += freed
            if available >= amount:
                return max(end_us, self.state.now_us)
        return FOREVER_US - 1  # not with the nodes that are up: it waits for one to come back

    def _ends(self, resource: Resource) -> list[tuple[int, int, int]]:
        started = self._started.get(resource.index)
        return sorted(resource.ends + started) if started else resource.ends


class Fcfs(Policy):
    """Starts jobs in the order they came; a job that cannot start blocks what it wants."""

    def decide(self, state: State) -> Decision:
        """Start from the heads of the lines, in the order of arrival."""
        current = Pass(state)
        start_in_order(current)
        return Decision(current.starts)


def start_in_order(current: Pass) -> None:
    """Start the heads of the lines until each is blocked; a job that cannot start blocks all that it wants."""
    blocked = [False] * len(current.free)
    fronts = [(iter(line), line.resources) for line in current.state.lines.values() if line.queue]
    heads = [(entry.order, entry, front) for front in fronts if (entry := next(front[0], None)) is not None]
    while heads:
        head = min(heads)
        heads.remove(head)
        _order, entry, (entries, resources) = head
        if any(blocked[resource.index] for resource in resources) or not current.admit(entry):
            for resource in resources:
                blocked[resource.index] = True
        elif (following := next(entries, None)) is not None:
            heads.append((following.order, following, (entries, resources)))


class Backfill(Policy):
    """Between two passes only the heads of the lines start, in order."""

    def decide(self, state: State) -> Decision:
        """Start what can start now."""
        if not state.backfill:
            current = Pass(state)
            start_in_order(current)
            return Decision(current.starts)
        if not state.freed and not self.depth and not _any_fits(state.arrived):
            return NOTHING  # whoever could not start before still cannot
        return self.fill(state)

    def fill(self, state: State) -> Decision:
        """One backfill pass."""
        raise NotImplementedError


def _any_fits(arrived: list[Entry]) -> bool:
    """Whether one of these who still waits could start if it were alone."""
    for entry in arrived:
        if entry.waiting and entry.amounts[0] <= entry.line.resources[0].free:
            wanted = zip(entry.line.resources, entry.amounts, strict=True)
            if len(entry.amounts) == 1 or all(amount <= resource.free for resource, amount in wanted):
                return True
    return False
