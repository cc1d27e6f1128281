"""A device as the queue knows it: the bound on waiting that it can promise, its line and its sessions.

Sessions take turns, one task each. A task at the head of its session then waits for at most one task of each of
the N - 1 others and for at most B tasks from outside any session; each lasts at most S_max and is tried at most
1 + retries times. Behind tasks of its own session it waits for their turns too: W (k + 1) if k of them are queued,
and for as long as these and the one on the device may execute. Time in which the device is not available does not
count. A vendor with a queue of its own, or one that does not stop tasks, keeps a task for as long as it likes:
nothing is promised there.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from qloom.broker.queue.events import SessionRequested
from qloom.broker.queue.policies import CAN_PROMISE
from qloom.errors import InputError


@dataclass(frozen=True)
class DeviceSpec:
    """What the queue has to know of a device."""

    name: str
    shares: int = 8  # vQPUs: sessions of kind SHARE at once (N)
    lanes: int = 1  # tasks that the device itself runs at once
    policy: str = "fifo"
    outside_limit: int = 1  # tasks from outside any session that may go before a session's (B)
    longest_s: float | None = None  # the longest task that is admitted; None: any, and nothing is promised
    retries: int = 0  # how often a task is tried again after a fault of the device
    limit_s: float | None = None  # execution is ended after that; None: after longest_s
    bounded: bool = True  # False: how long a task is there is not the broker's to limit, so nothing is promised

    def __post_init__(self) -> None:
        if self.shares < 1 or self.lanes < 1 or self.outside_limit < 0 or self.retries < 0:
            raise InputError(f"QPU {self.name}: shares and lanes are at least 1, limits and retries at least 0")

    @property
    def slowest_s(self) -> float | None:
        """The longest that an admitted task can execute (S_max)."""
        return None if self.longest_s is None else max(self.longest_s, self.limit_s or 0.0)

    def promised_wait_s(self, shares: int | None = None) -> float | None:
        """The longest wait at the head of one of `shares` sessions (W); None if nothing can be promised."""
        if self.slowest_s is None or self.policy not in CAN_PROMISE or not self.bounded:
            return None
        return ((shares or self.shares) - 1 + self.outside_limit) * self.slowest_s * (1 + self.retries)

    def most_shares(self, wait_s: float) -> int:
        """The largest number of sessions for which W is at most `wait_s`, if any can be promised."""
        assert self.slowest_s is not None  # noqa: S101
        return math.floor(wait_s / (self.slowest_s * (1 + self.retries)) + 1 - self.outside_limit + 1e-9)


def shares_for(spec: DeviceSpec, wait_s: float) -> int:
    """How many shares a device may offer if no session's task is to wait for longer than `wait_s`."""
    if not spec.bounded:
        raise InputError(
            f"QPU {spec.name} cannot promise a wait: its vendor queues tasks, or does not stop them",
            hint="leave promised_wait_s out for it: [promises.NAME]",
        )
    if spec.slowest_s is None or spec.policy not in CAN_PROMISE:
        raise InputError(
            f"QPU {spec.name} cannot promise a wait under policy {spec.policy}", hint="use fifo and set longest_s"
        )
    shares = spec.most_shares(wait_s)
    if shares < 1:
        least_s = spec.promised_wait_s(1)
        raise InputError(
            f"QPU {spec.name} cannot promise {wait_s:g} s: with one share it is {least_s:g} s",
            hint="admit shorter tasks (longest_s), fewer from outside, or promise more",
        )
    return shares


@dataclass(slots=True)
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
        if idle_s is None and hold_s is None:
            return None
        dues = []
        if idle_s is not None and self.idle_us is not None:
            why = f"it held the whole device for {idle_s:g} s without a task"
            dues.append((self.idle_us + round(idle_s * 1e6), why))
        if hold_s is not None:
            why = f"it held the whole device for {hold_s:g} s, the longest that is allowed"
            dues.append((self.opened_us + round(hold_s * 1e6), why))
        return min(dues, default=None)


class Backlog:
    """Expected work that is queued or executing, by the numbers of its tasks: who came first has the smallest.

    Counted in blocks, so that it takes little to look ahead from the end of a long line.
    """

    BLOCK = 256  # numbers

    def __init__(self) -> None:
        self.total_us = 0
        self._blocks: dict[int, dict[int, int]] = {}
        self._sums_us: dict[int, int] = {}

    def add(self, number: int, expected_us: int) -> None:
        """A task comes."""
        block = number // self.BLOCK
        self._blocks.setdefault(block, {})[number] = expected_us
        self._sums_us[block] = self._sums_us.get(block, 0) + expected_us
        self.total_us += expected_us

    def remove(self, number: int) -> None:
        """A task leaves."""
        block = number // self.BLOCK
        expected_us = self._blocks[block].pop(number)
        self._sums_us[block] -= expected_us
        self.total_us -= expected_us
        if not self._blocks[block]:
            del self._blocks[block], self._sums_us[block]

    def before(self, number: int) -> tuple[int, int]:
        """How many tasks have smaller numbers, and their expected microseconds."""
        own = number // self.BLOCK
        here = [expected_us for other, expected_us in self._blocks.get(own, {}).items() if other < number]
        earlier = [block for block in self._blocks if block < own]
        count = sum(len(self._blocks[block]) for block in earlier)
        return count + len(here), sum(here) + sum(self._sums_us[block] for block in earlier)


@dataclass(slots=True)
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
    backlog: Backlog = field(default_factory=Backlog)

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
