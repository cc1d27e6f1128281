"""What keeps an emulated device from working: planned outages, windows of calibration, injected faults.

All of it is decided by the clock and by a seed, so that whoever restarts in between meets the same.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qloom.device import Outage
from qloom.errors import InputError

DAY_S = 86_400.0
HINT = '{ at = "03:00", for_s = 1800 } each day (UTC), or { every_s = 3600, for_s = 60, first_s = 0 }'

FAULTS = (
    "fail",  # the task ends in the middle, by a fault of the device
    "refuse",  # the device does not answer when it is handed a task, and has not taken it
    "lost",  # the device takes the task, but the word of it is lost
    "crash",  # the process that computes the answer dies
)


def is_away(outages_s: Sequence[Outage], now_s: float) -> bool:
    """Whether one of the outages lasts now."""
    return any(begin <= now_s and (until is None or now_s < until) for begin, until in outages_s)


@dataclass(frozen=True)
class Window:
    """From `first_s` after midnight UTC, every `every_s`, for `for_s` seconds."""

    for_s: float
    every_s: float = DAY_S
    first_s: float = 0.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) for value in (self.for_s, self.every_s, self.first_s)):
            raise InputError("a calibration window's seconds must be finite", hint=HINT)
        if not 0 < self.for_s < self.every_s:
            raise InputError(
                f"a calibration of {self.for_s:g} s every {self.every_s:g} s leaves no time to run", hint=HINT
            )

    def left_s(self, now_s: float) -> float:
        """Seconds until the window closes; 0 outside of it. `now_s` is Unix time, which began at midnight."""
        into_s = (now_s - self.first_s) % self.every_s
        return self.for_s - into_s if into_s < self.for_s else 0.0

    def closed(self, now_s: float) -> int:
        """How many times the window has closed since it first could, counted from 0."""
        return math.floor((now_s - self.first_s - self.for_s) / self.every_s) + 1


def calibration_at(windows: Sequence[Window], now_s: float) -> str | None:
    """The name of the calibration that a device has: a new one whenever a window closes; None without windows."""
    return f"c{sum(window.closed(now_s) for window in windows)}" if windows else None


def left_s(windows: Sequence[Window], now_s: float) -> float:
    """Seconds until none of the windows is open; 0 if that is now."""
    end_s = now_s
    for _ in range(1000):  # windows that follow each other without a gap are one
        more_s = max((window.left_s(end_s) for window in windows), default=0.0)
        if more_s <= 0.0:
            break
        end_s += more_s
    return end_s - now_s


def window_from(values: Any) -> Window:
    """A window as a config file writes it."""
    if not isinstance(values, Mapping):
        raise InputError(f"a calibration window is a table, not {values!r}", hint=HINT)
    unknown = [key for key in values if key not in ("at", "for_s", "every_s", "first_s")]
    if unknown:
        raise InputError(f"a calibration window has no {unknown[0]!r}", hint=HINT)
    numbers = {key: value for key, value in values.items() if key != "at"}
    if "for_s" not in numbers:
        raise InputError("a calibration window needs for_s", hint=HINT)
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"a calibration window's {key} must be a number, not {value!r}", hint=HINT)
    if "at" in values:
        time = re.fullmatch(r"([01]\d|2[0-3]):([0-5]\d)", str(values["at"]))
        if time is None or "every_s" in values or "first_s" in values:
            raise InputError(f"a calibration window at {values['at']!r} is no time of the day", hint=HINT)
        numbers["first_s"] = int(time[1]) * 3600 + int(time[2]) * 60
    return Window(**{key: float(value) for key, value in numbers.items()})


@dataclass(frozen=True)
class DeviceFaults:
    """How often each kind happens (`rates`), or which task has which (`script`, by token)."""

    rates: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    script: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind in (*self.rates, *self.script.values()):
            if kind not in FAULTS:
                raise InputError(f"there is no fault {kind!r}", hint=", ".join(FAULTS))
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
