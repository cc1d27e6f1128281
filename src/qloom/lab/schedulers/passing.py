"""One pass over the state: what is left while jobs are being started, and the reservations made on the way."""

from __future__ import annotations

from qloom.lab.schedulers.policy import Start
from qloom.lab.schedulers.state import FOREVER_US, Entry, Resource, State


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
