"""What backfilling policies have in common: when a pass is due, and when it can be left out."""

from __future__ import annotations

from qloom.lab.schedulers.fcfs import start_in_order
from qloom.lab.schedulers.passing import Pass
from qloom.lab.schedulers.policy import Decision, Policy
from qloom.lab.schedulers.state import Entry, State

NOTHING = Decision()


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
