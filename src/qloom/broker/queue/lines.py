"""What the queue core remembers of sessions and devices: one entry per session, one line per device."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from qloom.broker.queue.events import SessionRequested
from qloom.broker.queue.promise import DeviceSpec


@dataclass
class SessionEntry:
    """A session that is open, or wants to be."""

    requested: SessionRequested
    is_open: bool = False
    tasks: deque[str] = field(default_factory=deque)  # queued ones
    turn_s: float = 0.0  # seconds of the present turn: expected ones, and those that were more
    set_up: str | None = None
    held: dict[str, None] = field(default_factory=dict)  # tasks that an administrator holds
    opened_us: int = 0
    idle_us: int | None = None  # since when it has held the whole device without a task

    def due_us(self) -> tuple[int, str] | None:
        """When a hold of the whole device ends, and why."""
        idle_s, hold_s = self.requested.idle_limit_s, self.requested.hold_limit_s
        dues = []
        if idle_s is not None and self.idle_us is not None:
            why = f"it held the whole device for {idle_s:g} s without a task"
            dues.append((self.idle_us + round(idle_s * 1e6), why))
        if hold_s is not None:
            why = f"it held the whole device for {hold_s:g} s, the longest that is allowed"
            dues.append((self.opened_us + round(hold_s * 1e6), why))
        return min(dues, default=None)


@dataclass
class DeviceLine:
    """A device, and who waits for it."""

    spec: DeviceSpec
    up: bool = True
    requests: deque[str] = field(default_factory=deque)  # sessions that want to be opened
    open: dict[str, None] = field(default_factory=dict)
    outside: dict[Hashable, OrderedDict[str, None]] = field(default_factory=dict)  # queued, by the policy's groups
    executing: list[str] = field(default_factory=list)
    owner: str | None = None
    after_whole: bool = False  # a whole hold has ended, and no task from outside has run since
    away: bool = False  # neither up nor at work
    backlog_us: int = 0  # expected, of all that is queued or executing

    def wait_outside(self, task: str, group: Hashable, *, first: bool = False) -> None:
        """Put a task from outside any session in its line."""
        line = self.outside.setdefault(group, OrderedDict())
        line[task] = None
        line.move_to_end(task, last=not first)

    def leave_outside(self, task: str, group: Hashable) -> None:
        """Take it out."""
        line = self.outside[group]
        del line[task]
        if not line:
            del self.outside[group]

    def first_outside(self) -> list[str]:
        """Those that can be next: the first of each group."""
        return [next(iter(line)) for line in self.outside.values()]
