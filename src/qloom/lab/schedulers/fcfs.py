"""First come, first served: whoever does not fit stops those behind who want the same."""

from __future__ import annotations

from qloom.lab.schedulers.passing import Pass
from qloom.lab.schedulers.policy import Decision, Policy
from qloom.lab.schedulers.state import State


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
