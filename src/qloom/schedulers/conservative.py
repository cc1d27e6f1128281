"""Conservative backfilling: everybody who waits has a place in a plan, and nobody is put before it at their cost.

The plan is made anew in each pass, in the order of arrival, as Slurm's backfill does: each job at the earliest time
at which it fits for its whole time limit, beside all that run and all that came before it. So a job's place never
depends on one that came later. (Mu'alem and Feitelson 2001.)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice

from qloom.schedulers.easy import NOTHING, any_fits
from qloom.schedulers.fcfs import start_in_order
from qloom.schedulers.passing import Pass
from qloom.schedulers.policy import Decision, Policy, Start
from qloom.schedulers.state import Entry, Resource, State


class Conservative(Policy):
    """Plans for everybody; a job starts early only if that delays nobody before it."""

    def decide(self, state: State) -> Decision:
        """Make the plan, and start those whose place is now."""
        if not state.backfill:
            current = Pass(state)
            start_in_order(current)
            return Decision(current.starts)
        if not state.freed and not self.depth and not any_fits(state.arrived):
            return NOTHING
        plans = [_Plan(resource, state.now_us) for resource in state.resources.values()]
        starts: list[Start] = []
        for entry in islice(state.waiting, self.depth or None):
            parts = [
                (plans[resource.index], amount)
                for resource, amount in zip(entry.line.resources, entry.amounts, strict=True)
            ]
            at_us = _earliest_us(parts, entry.limit_us, state.now_us)
            if at_us is None:
                continue  # not with the nodes that are up
            amounts = entry.amounts
            if at_us == state.now_us:
                amounts = _as_many(entry, parts[0][0], at_us)
                starts.append((entry, amounts))
            for (plan, _amount), amount in zip(parts, amounts, strict=True):
                plan.take(at_us, at_us + entry.limit_us, amount)
        return Decision(starts)


class _Plan:
    """How much of a resource is free, from each of `times_us` until the next."""

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
        """Less is free from here to there."""
        for time_us in (begin_us, end_us):
            place = bisect_left(self.times_us, time_us)
            if place == len(self.times_us) or self.times_us[place] != time_us:
                self.times_us.insert(place, time_us)
                self.free.insert(place, self.free[place - 1])
        for place in range(bisect_left(self.times_us, begin_us), bisect_left(self.times_us, end_us)):
            self.free[place] -= amount


def _earliest_us(parts: list[tuple[_Plan, int]], limit_us: int, at_us: int) -> int | None:
    while True:
        for plan, amount in parts:
            later_us = plan.too_little_until(amount, at_us, at_us + limit_us)
            if later_us == -1:
                return None
            if later_us is not None:
                at_us = later_us
                break
        else:
            return at_us


def _as_many(entry: Entry, plan: _Plan, now_us: int) -> tuple[int, ...]:
    """An expander takes up to `most_nodes`, as far as they are free for its whole time."""
    if entry.most_nodes <= entry.amounts[0]:
        return entry.amounts
    return (min(entry.most_nodes, plan.least(now_us, now_us + entry.limit_us)), *entry.amounts[1:])
