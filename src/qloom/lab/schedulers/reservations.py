"""Backfilling with a reservation for everybody who waits.

*Conservative* keeps its reservations. A job that arrives reserves the earliest time at which it fits for its whole
time limit, beside all that run and all other reservations. When something is given back early, the reservations are
compressed: each in turn, in the order of arrival, moves to the earliest time that leaves all others where they are.
So no job starts later than it was first promised, as long as nobody runs for longer than their limit and no node is
lost. (Mu'alem and Feitelson 2001.)

*Replan* makes new ones in each pass, as Slurm's backfill scheduler does. Everybody who waits gets a place in the
order of arrival, beside all that run and all that came before it. Nothing is kept from one pass to the next, so a
job may start later than an earlier plan had it: when a job ends early, one that came before may move into a hole in
such a way that one behind it loses its place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import islice

from qloom.lab.schedulers.policy import Backfill, Decision, Policy, Start
from qloom.lab.schedulers.state import FOREVER_US, Entry, Resource, State

Part = tuple["Profile", int]  # of which a job wants so much


class Conservative(Policy):
    """Reserves for everybody; a job starts early only if that delays no reservation."""

    def __init__(self, **options: float) -> None:
        super().__init__(**options)
        self.reserved_us: dict[Entry, int] = {}  # when a job that waits starts at the latest
        self._interval_us = round(self.interval_s * 1e6)
        self._profiles: list[Profile] = []  # with all that run and all reservations
        self._capacities: list[int] = []  # as the profiles have them

    def decide(self, state: State) -> Decision:
        """Start those whose reservation is now; backfill passes also make and compress reservations."""
        starts: list[Start] = []
        is_stale = self._is_stale(state)
        if is_stale:
            self._rebuild(state)
        due = {entry: True for entry, at_us in self.reserved_us.items() if at_us == state.now_us}
        for entry in due:
            self._place(entry, state, starts)
        if state.backfill:
            for entry in list(self._to_place(state, is_stale)):
                if entry not in due:
                    self._place(entry, state, starts)
        else:
            self._start_heads([entry for entry in state.waiting if entry not in due], state, starts)
        return Decision(starts, again_us=min(self.reserved_us.values(), default=FOREVER_US))

    def _is_stale(self, state: State) -> bool:
        """Whether something was given back or lost, or is held for too long, since the profiles were made."""
        resources = state.resources.values()
        return (
            state.freed
            or self._capacities != [resource.capacity for resource in resources]
            or any(resource.ends and resource.ends[0][0] <= state.now_us for resource in resources)
        )

    def _rebuild(self, state: State) -> None:
        """Begin with what runs, and put in all reservations that late jobs and lost nodes leave possible."""
        self._capacities = [resource.capacity for resource in state.resources.values()]
        self._profiles = profiles_of(state)
        before, self.reserved_us = self.reserved_us, {}
        for entry in self._seen(state):
            at_us = before.get(entry, -1)
            if at_us >= state.now_us:
                parts, end_us = parts_of(entry, self._profiles), at_us + entry.limit_us
                if all(profile.too_little_until(amount, at_us, end_us) is None for profile, amount in parts):
                    take(parts, at_us, entry.limit_us)
                    self.reserved_us[entry] = at_us

    def _seen(self, state: State) -> Iterable[Entry]:
        return islice(state.waiting, self.depth or None)

    def _to_place(self, state: State, is_stale: bool) -> Iterable[Entry]:
        """Who is to be placed: everybody, once something was given back; else those who have no reservation yet."""
        if is_stale or self.depth:
            return (entry for entry in self._seen(state) if is_stale or entry not in self.reserved_us)
        return (entry for entry in state.arrived if entry.waiting and entry not in self.reserved_us)

    def _place(self, entry: Entry, state: State, starts: list[Start], *, is_only_now: bool = False) -> bool:
        """Start a job if it fits around all reservations, else move its own as far ahead as it goes."""
        parts, limit_us = parts_of(entry, self._profiles), entry.limit_us
        before_us = self.reserved_us.pop(entry, None)
        if before_us is not None:
            give_back(parts, before_us, limit_us)
        step_us = self._interval_us if entry.needs_pass and self._interval_us else 1
        at_us = earliest_us(parts, limit_us, state.now_us, step_us)
        if at_us == state.now_us:
            amounts = most_amounts(entry, parts, at_us)
            take(parts, at_us, limit_us, amounts)
            starts.append((entry, amounts))
            return True
        if is_only_now:
            at_us = before_us
        if at_us is not None:  # else it does not fit with the nodes that are up
            take(parts, at_us, limit_us)
            self.reserved_us[entry] = at_us
        return False

    def _start_heads(self, waiting: list[Entry], state: State, starts: list[Start]) -> None:
        """Between two passes, start the heads of the lines; one that cannot start blocks all that it wants."""
        blocked = [False] * len(self._profiles)
        for entry in waiting:
            indices = [resource.index for resource in entry.line.resources]
            if any(blocked[index] for index in indices) or not self._place(entry, state, starts, is_only_now=True):
                for index in indices:
                    blocked[index] = True


class Replan(Backfill):
    """Plans for everybody anew; a job starts early only if that delays nobody before it in this plan."""

    def fill(self, state: State) -> Decision:
        """Make the plan, and start those whose place is now."""
        profiles = profiles_of(state)
        starts: list[Start] = []
        for entry in islice(state.waiting, self.depth or None):
            parts = parts_of(entry, profiles)
            at_us = earliest_us(parts, entry.limit_us, state.now_us)
            if at_us is None:
                continue  # not with the nodes that are up
            amounts = entry.amounts
            if at_us == state.now_us:
                amounts = most_amounts(entry, parts, at_us)
                starts.append((entry, amounts))
            take(parts, at_us, entry.limit_us, amounts)
        return Decision(starts)


class Profile:
    """What is free of a resource, from each of `times_us` until the next."""

    __slots__ = ("free", "times_us")

    def __init__(self, resource: Resource, now_us: int) -> None:
        self.times_us = [now_us]
        self.free = [resource.free]
        for end_us, _order, amount in resource.ends:
            end_us = max(end_us, now_us + 1)  # who is late holds it still
            if end_us != self.times_us[-1]:
                self.times_us.append(end_us)
                self.free.append(self.free[-1])
            self.free[-1] += amount

    def too_little_until(self, amount: int, begin_us: int, end_us: int) -> int | None:
        """The end of the first stretch with less than `amount`; None if there is none, -1 if it has no end."""
        for place in range(bisect_right(self.times_us, begin_us) - 1, bisect_left(self.times_us, end_us)):
            if self.free[place] < amount:
                return self.times_us[place + 1] if place + 1 < len(self.times_us) else -1
        return None

    def least(self, begin_us: int, end_us: int) -> int:
        """The least that is free in a stretch of time."""
        first, last = bisect_right(self.times_us, begin_us) - 1, bisect_left(self.times_us, end_us)
        return min(self.free[first:last])

    def take(self, begin_us: int, end_us: int, amount: int) -> None:
        """Less is free from here to there; a negative amount gives back what was taken."""
        times_us, free = self.times_us, self.free
        for time_us in (begin_us, end_us):
            place = bisect_left(times_us, time_us)
            if place == len(times_us) or times_us[place] != time_us:
                times_us.insert(place, time_us)
                free.insert(place, free[place - 1])
        for place in range(bisect_left(times_us, begin_us), bisect_left(times_us, end_us)):
            free[place] -= amount


def profiles_of(state: State) -> list[Profile]:
    """The profile of each resource, by its index."""
    return [Profile(resource, state.now_us) for resource in state.resources.values()]


def parts_of(entry: Entry, profiles: list[Profile]) -> list[Part]:
    """What a job wants, of which profile."""
    wanted = zip(entry.line.resources, entry.amounts, strict=True)
    return [(profiles[resource.index], amount) for resource, amount in wanted]


def earliest_us(parts: list[Part], limit_us: int, at_us: int, step_us: int = 1) -> int | None:
    """When a job fits for its whole limit, from `at_us` on, at a multiple of `step_us`; None if it never does."""
    while True:
        at_us += -at_us % step_us
        for profile, amount in parts:
            later_us = profile.too_little_until(amount, at_us, at_us + limit_us)
            if later_us == -1:
                return None
            if later_us is not None:
                at_us = later_us
                break
        else:
            return at_us


def take(parts: list[Part], at_us: int, limit_us: int, amounts: tuple[int, ...] | None = None) -> None:
    """Put a job into the profiles, perhaps with more than it asks for."""
    for place, (profile, amount) in enumerate(parts):
        profile.take(at_us, at_us + limit_us, amount if amounts is None else amounts[place])


def give_back(parts: list[Part], at_us: int, limit_us: int) -> None:
    """Take a job out of the profiles."""
    for profile, amount in parts:
        profile.take(at_us, at_us + limit_us, -amount)


def most_amounts(entry: Entry, parts: list[Part], now_us: int) -> tuple[int, ...]:
    """An expander takes up to `most_nodes`, as far as they are free for its whole time."""
    if entry.most_nodes <= entry.amounts[0]:
        return entry.amounts
    return (min(entry.most_nodes, parts[0][0].least(now_us, now_us + entry.limit_us)), *entry.amounts[1:])
