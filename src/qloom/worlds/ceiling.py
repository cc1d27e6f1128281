"""Adding up what is held over time, until there is no more of it to be had."""

from __future__ import annotations

from collections.abc import Callable

from qloom.world import Clock


class Ceiling:
    """Adds up what is held, and calls `reached` at the moment when the most is reached."""

    def __init__(self, clock: Clock, most_s: float | None, used_s: float, reached: Callable[[], None]) -> None:
        self._clock = clock
        self._most_s = most_s
        self._used_s = used_s
        self._reached = reached
        self._held = 0.0
        self._since_us = clock.now_us()
        self._cancel: Callable[[], None] | None = None

    def change(self, by: float) -> None:
        """More, or less, is held from now on."""
        if self._most_s is None:
            return
        now_us = self._clock.now_us()
        self._used_s += self._held * (now_us - self._since_us) / 1e6
        self._held, self._since_us = max(0.0, self._held + by), now_us
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        if self._held > 0:
            self._cancel = self._clock.deadline(max(0.0, self._most_s - self._used_s) / self._held, self._reached)

    def close(self) -> None:
        """Forget the deadline."""
        if self._cancel is not None:
            self._cancel()
