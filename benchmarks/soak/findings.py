"""What a soak has seen: tasks that were accepted and answered, outages, attacks, and every broken promise."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

SLACK_S = 2.0  # of a machine that is busy with everything else that runs here
SHOWN = 20  # violations of one kind are counted beyond that


@dataclass
class Outages:
    """When a device could start nothing, in time of day; and when its broker was killed."""

    kills_s: list[float] = field(default_factory=list)
    _past: list[tuple[float, float]] = field(default_factory=list)
    _open: dict[str, float] = field(default_factory=dict)  # by cause

    def begin(self, cause: str) -> None:
        """From now on the device starts nothing."""
        self._open.setdefault(cause, time.time())

    def end(self, cause: str) -> None:
        """It does again."""
        self._past.append((self._open.pop(cause), time.time()))

    def is_open(self, cause: str) -> bool:
        """Whether the device is away for a cause."""
        return cause in self._open

    def overlap_s(self, began_s: float, ended_s: float) -> float:
        """At most how long the device was away within a time; outages that overlap count twice."""
        known = [*self._past, *((since_s, time.time()) for since_s in self._open.values())]
        return sum(max(0.0, min(ended_s, end_s) - max(began_s, since_s)) for since_s, end_s in known)

    def kills(self, began_s: float, ended_s: float) -> int:
        """How often the broker was killed within a time."""
        return sum(began_s <= at_s <= ended_s for at_s in self.kills_s)


@dataclass
class Findings:
    """All of it; `violations` is empty if the broker kept its word."""

    accepted: dict[str, tuple[str, Any]] = field(default_factory=dict)  # key -> task, expected answer
    answered: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    attacks: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)  # answers to attacks
    waits_s: list[tuple[float, float]] = field(default_factory=list)  # of sessions' tasks: waited, promised
    violations: list[str] = field(default_factory=list)

    def violate(self, what: str) -> None:
        """Something that must not happen."""
        self.counts["violations"] += 1
        if len(self.violations) < SHOWN:
            self.violations.append(what)
            print(f"VIOLATION: {what}", flush=True)  # at once: a soak may take an hour

    def accept(self, key: str, task: str, expected: Any) -> None:
        """A task was accepted; the same key must always give the same task."""
        known = self.accepted.setdefault(key, (task, expected))
        if known[0] != task:
            self.violate(f"key {key} made two tasks: {known[0]} and {task}")

    def answer(self, key: str, got: Any) -> None:
        """A task was answered."""
        expected = self.accepted[key][1]
        if got != expected:
            self.violate(f"task {key}: expected {expected!r}, got {got!r}")
        self.answered[key] += 1

    def wait(self, key: str, view: dict[str, Any], promised_s: float, limit_s: float, outages: Outages) -> None:
        """Compare the wait of a task at the head of its session with the promise.

        A broker that is killed takes what ran on an emulated device with it; for each kill, what ran then and the
        task itself may run once more.
        """
        began_s, executing_s = view["submitted_us"] / 1e6, view["executing_us"] / 1e6
        away_s = outages.overlap_s(began_s, executing_s)
        again_s = 2 * limit_s * outages.kills(began_s, executing_s)
        waited_s = executing_s - began_s - away_s - again_s
        self.waits_s.append((max(0.0, waited_s), promised_s))
        if waited_s > promised_s + SLACK_S:
            self.violate(f"task {key} waited {waited_s:.1f} s of device time, and {promised_s:g} s was promised")
