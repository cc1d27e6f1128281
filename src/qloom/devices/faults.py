"""Faults that an emulated device can be made to have, from a seed: to test what stands above it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from qloom.errors import InputError

KINDS = (
    "fail",  # the task ends in the middle, by a fault of the device
    "refuse",  # the device does not answer when it is handed a task, and has not taken it
    "lost",  # the device takes the task, but the word of it is lost
    "crash",  # the process that computes the answer dies
)


@dataclass(frozen=True)
class Faults:
    """How often each kind happens (`rates`), or which task has which (`script`, by token)."""

    rates: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    script: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind in (*self.rates, *self.script.values()):
            if kind not in KINDS:
                raise InputError(f"there is no fault {kind!r}", hint=", ".join(KINDS))
        if any(rate < 0 for rate in self.rates.values()) or sum(self.rates.values()) > 1:
            raise InputError("rates of faults are shares of all tasks: at least 0, together at most 1")

    def of(self, token: str, attempt: int) -> str | None:
        """The fault of this attempt; the same for the same seed, whatever else runs."""
        if token in self.script:
            return self.script[token] if attempt == 0 else None
        drawn = random.Random(f"{self.seed}:{token}:{attempt}").random()
        for kind, rate in self.rates.items():
            if drawn < rate:
                return kind
            drawn -= rate
        return None
