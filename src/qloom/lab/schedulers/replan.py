"""Backfilling by a new plan in each pass, as Slurm's backfill scheduler does.

Everybody who waits gets a place in the order of arrival: the earliest time at which the job fits for its whole time
limit, beside all that run and all that came before it. Nothing is kept from one pass to the next, so a job may start
later than an earlier plan had it: when a job ends early, one that came before may move into a hole in such a way that
one behind it loses its place. `conservative` keeps what it has promised.
"""

from __future__ import annotations

from itertools import islice

from qloom.lab.schedulers.backfill import Backfill
from qloom.lab.schedulers.policy import Decision, Start
from qloom.lab.schedulers.profile import earliest_us, most_amounts, parts_of, profiles_of, take
from qloom.lab.schedulers.state import State


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
