"""The bound on waiting that a shared device can promise, and how many shares it allows.

Sessions take turns, one task each. A task at the head of its session then waits for at most one task of each of
the N - 1 others and for at most B tasks from outside any session; each lasts at most S_max and is tried at most
1 + retries times. Behind tasks of its own session it waits for their turns too: W (k + 1) if k of them are queued,
and for as long as these and the one on the device may execute. Time in which the device is not available does not
count. A vendor with a queue of its own, or one that does not stop tasks, keeps a task for as long as it likes:
nothing is promised there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
