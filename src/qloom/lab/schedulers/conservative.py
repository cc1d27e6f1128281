"""Conservative backfilling: everybody who waits has a reservation, and keeps it until there is an earlier one.

A job that arrives reserves the earliest time at which it fits for its whole time limit, beside all that run and all
other reservations. When something is given back early, the reservations are compressed: each in turn, in the order of
arrival, moves to the earliest time that leaves all others where they are. So no job starts later than it was first
promised, as long as nobody runs for longer than their limit and no node is lost. (Mu'alem and Feitelson 2001.)
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from qloom.lab.schedulers.policy import Decision, Policy, Start
from qloom.lab.schedulers.profile import Profile, earliest_us, give_back, most_amounts, parts_of, profiles_of, take
from qloom.lab.schedulers.state import FOREVER_US, Entry, State


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
