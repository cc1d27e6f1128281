"""The clock of a journal that is written after the fact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ToldClock:
    """A clock that says what time an event happened at, as others have noted it."""

    real_time = False

    def __init__(self, epoch_us: int = 0) -> None:
        self._epoch_us = epoch_us
        self._now_us = 0

    def set(self, at_us: int) -> None:
        """The time of the next event; it never goes back."""
        self._now_us = max(self._now_us, at_us - self._epoch_us)

    def now_us(self) -> int:
        """Microseconds since the run began."""
        return self._now_us

    def sleep(self, seconds: float) -> Any:
        """Nothing waits by this clock."""
        raise NotImplementedError

    def deadline(self, seconds: float, then: Callable[[], None]) -> Any:
        """Nothing is due by it either."""
        raise NotImplementedError
