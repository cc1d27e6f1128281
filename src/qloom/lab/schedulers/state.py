"""What a scheduling policy sees: resources, who runs until when, and who waits, found fast.

A resource is something counted: the nodes of a partition, the shares of a QPU, any other gres. Jobs that want the
same resources stand in one line. Once a pass has left them there they are also kept by amounts and time limit, so
that the next one asks "the first job of this size and limit" and never walks the whole line.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from qloom.errors import InputError

FOREVER_US = 1 << 62


class Resource:
    """The nodes of a partition, or a gres: how many there are, how many are free, and when more are expected."""

    __slots__ = ("capacity", "ends", "free", "index", "name", "total")

    def __init__(self, name: str, capacity: int, index: int) -> None:
        self.name = name
        self.total = capacity
        self.capacity = capacity  # without those that are down
        self.free = capacity
        self.index = index
        self.ends: list[tuple[int, int, int]] = []  # (expected end, order, amount) of who holds some, sorted


class Entry:
    """A job, or one request of a hybrid job, that waits or runs."""

    __slots__ = (
        "amounts", "bucket", "end_us", "held", "id", "limit_us", "line", "malleable", "most_nodes", "needs_pass",
        "order", "owner", "queued_us", "run_us", "start_us", "waiting",
    )  # fmt: skip

    order: int
    queued_us: int
    start_us: int
    end_us: int
    held: tuple[int, ...]

    def __init__(
        self,
        id: str | int,
        line: PolicyLine,
        amounts: tuple[int, ...],
        limit_us: int,
        run_us: int = -1,
        owner: Any = None,
    ) -> None:
        self.id = id
        self.line = line
        self.amounts = amounts  # of each resource of the line
        self.limit_us = limit_us
        self.run_us = run_us  # how long a rigid job takes; -1: a hybrid job says itself when it is done
        self.owner = owner
        self.most_nodes = 0  # above amounts[0]: any number up to this will do
        self.needs_pass = False  # a het job: only a backfill pass starts it
        self.malleable = False
        self.waiting = False
        self.bucket: deque[Entry] | None = None  # those of its amounts and limit, once it is kept by them
        # Set when it stands in line: order, queued_us; when it starts: held (the amounts given), start_us, end_us.


class SameAmounts(NamedTuple):
    """Jobs that want the same amounts, by time limit."""

    first_amount: int
    limits: list[int]  # sorted
    buckets: dict[int, deque[Entry]]  # the first of each always waits


class PolicyLine:
    """Jobs that want the same resources, in the order they came, and by (amounts, time limit)."""

    __slots__ = ("amounts", "groups", "queue", "resources")

    def __init__(self, resources: tuple[Resource, ...]) -> None:
        self.resources = resources
        self.queue: deque[Entry] = deque()  # who has left from the middle is skipped
        self.amounts: list[tuple[int, ...]] = []  # those that somebody waits for, sorted
        self.groups: list[SameAmounts] = []  # who waits for each of them

    def sort_in(self, entry: Entry) -> None:
        """Have a job that will wait for a while found by its amounts and limit.

        What is made here is of the same types as the line's own collections, which may be frozen (`frozen.py`).
        """
        amounts, limit_us = entry.amounts, entry.limit_us
        place = bisect_left(self.amounts, amounts)
        if place == len(self.amounts) or self.amounts[place] != amounts:
            self.amounts.insert(place, amounts)
            self.groups.insert(place, SameAmounts(amounts[0], type(self.groups)(), {}))  # type: ignore[arg-type]
        _first_amount, limits, buckets = self.groups[place]
        bucket = buckets.get(limit_us)
        if bucket is None:
            insort(limits, limit_us)
            bucket = buckets[limit_us] = type(self.queue)()
        bucket.append(entry)
        entry.bucket = bucket

    def leave(self, entry: Entry) -> None:
        """Forget a job that no longer waits; the first of the line and of each bucket always does."""
        queue, bucket = self.queue, entry.bucket
        while queue and not queue[0].waiting:
            queue.popleft()
        if bucket is None:
            return  # it was never sorted in
        while bucket and not bucket[0].waiting:
            bucket.popleft()
        if not bucket:
            place = bisect_left(self.amounts, entry.amounts)
            _first_amount, limits, buckets = self.groups[place]
            del buckets[entry.limit_us]
            del limits[bisect_left(limits, entry.limit_us)]
            if not buckets:
                del self.amounts[place], self.groups[place]

    def fitting(self, free: int) -> list[SameAmounts]:
        """Those who wait for amounts of which the first is at most `free`."""
        return self.groups[: bisect_right(self.amounts, (free, FOREVER_US))]

    def __iter__(self) -> Iterator[Entry]:
        return (entry for entry in self.queue if entry.waiting)


class Unstartable(Exception):
    """A policy starts a job that does not wait, or on more than is free."""


class State:
    """The cluster at one instant. A policy reads it; only the engine changes it."""

    def __init__(self, capacities: Sequence[tuple[str, int]]) -> None:
        self.now_us = 0
        self.backfill = True  # whether this pass may start jobs out of order
        self.resources = {name: Resource(name, count, index) for index, (name, count) in enumerate(capacities)}
        self.lines: dict[tuple[str, ...], PolicyLine] = {}
        self.running: dict[str | int, Entry] = {}
        self.waiting_count = 0
        self.arrived: list[Entry] = []  # since the last backfill pass; not kept by amounts and limit yet
        self.freed = True  # whether anything was given back since then
        self._orders = 0

    def line(self, names: tuple[str, ...]) -> PolicyLine:
        """The line of those who want these resources."""
        line = self.lines.get(names)
        if line is None:
            unknown = [name for name in names if name not in self.resources]
            if unknown:
                raise InputError(f"there is no {unknown[0]!r} here", hint=f"there are: {', '.join(self.resources)}")
            line = self.lines[names] = PolicyLine(tuple(self.resources[name] for name in names))
        return line

    def only_line(self) -> PolicyLine | None:
        """The line in which all wait, if it is only one, for only one resource."""
        lines = list(self.lines.values())
        if len(lines) > 1:
            lines = [line for line in lines if line.queue]
        return lines[0] if len(lines) == 1 and len(lines[0].resources) == 1 else None

    @property
    def waiting(self) -> list[Entry]:
        """Who waits, in the order they came."""
        return sorted((entry for line in self.lines.values() for entry in line), key=lambda entry: entry.order)

    # For the engine

    def enter(self, entry: Entry) -> None:
        """Stand in line, behind everybody."""
        self._orders = entry.order = self._orders + 1
        entry.queued_us = self.now_us
        entry.waiting = True
        entry.line.queue.append(entry)
        self.waiting_count += 1
        self.arrived.append(entry)

    def leave(self, entry: Entry) -> None:
        """Leave the line without having started."""
        entry.waiting = False
        entry.line.leave(entry)
        self.waiting_count -= 1
        self.freed = True  # whoever was behind it may start now

    def sort_in(self) -> None:
        """A backfill pass is over: those who came before it and still wait are found by amounts and limit now."""
        for entry in self.arrived:
            if entry.waiting:
                entry.line.sort_in(entry)
        self.arrived.clear()

    def start(self, entry: Entry, amounts: tuple[int, ...]) -> None:
        """Take what a job was given; raises `Unstartable` if the job does not wait or that is not free."""
        if not entry.waiting:
            raise Unstartable(f"starts job {entry.id}, which does not wait")
        line, now_us, order = entry.line, self.now_us, entry.order
        end_us = now_us + entry.limit_us
        for resource, amount in zip(line.resources, amounts, strict=True):
            if amount > resource.free:
                raise Unstartable(
                    f"over-allocates: it starts job {entry.id} on {amount} {resource.name}, {resource.free} are free"
                )
            resource.free -= amount
            insort(resource.ends, (end_us, order, amount))
        entry.waiting = False
        entry.held = amounts
        entry.start_us, entry.end_us = now_us, end_us
        self.running[entry.id] = entry
        line.leave(entry)
        self.waiting_count -= 1

    def end(self, entry: Entry) -> None:
        """Take back all that a job holds."""
        mark = (entry.end_us, entry.order, 0)
        for resource, amount in zip(entry.line.resources, entry.held, strict=True):
            resource.free += amount
            ends = resource.ends
            del ends[bisect_left(ends, mark)]
        del self.running[entry.id]
        self.freed = True

    def hold(self, entry: Entry, amounts: tuple[int, ...]) -> None:
        """Change what a running job holds: it grew, shrank, or gave a gres back."""
        changed = []
        for resource, before, after in zip(entry.line.resources, entry.held, amounts, strict=True):
            resource.free += before - after
            ends = resource.ends
            ends[bisect_left(ends, (entry.end_us, entry.order, 0))] = (entry.end_us, entry.order, after)
            changed.append(after < before)
        entry.held = amounts
        self.freed = self.freed or any(changed)

    def resize(self, resource: Resource, change: int) -> None:
        """A node was lost (-1) or came back (+1)."""
        resource.capacity += change
        resource.free += change
        self.freed = self.freed or change > 0
