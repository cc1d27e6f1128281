"""The broker's time: a clock that never goes back, and the time that brokers on this store have seen pass.

The machine's clock may be wrong at a start, and a jump of the clock looks like a broker that was away. So what is
kept "for a week" is kept for a week in which a broker ran: the times between two runs do not count. They are kept as
gaps in the store.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable

from qloom.broker.store.database import Database
from qloom.world import Clock, UnixClock

LOG = logging.getLogger("qloom.broker")
LAST, GAPS = "clock_us", "gaps"  # keys of the store
MERGED_US = 60_000_000  # gaps that are closer to each other are one, so that a broker that dies often fills no disk
JUMP_US = 86_400_000_000  # a longer gap is taken for a jump of the clock by deadlines, too


class ServiceClock(UnixClock):
    """Starts at the time of day, or where the last run ended if that is later, and goes on evenly from there."""

    def __init__(self, floor_us: int = 0, wall_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        wall = wall_us()
        if wall < floor_us:
            LOG.warning(
                "the clock went back by %.1f s since the broker last ran: going on from the later time",
                (floor_us - wall) / 1e6,
            )
        self._epoch_us = max(wall, floor_us) - time.monotonic_ns() // 1000

    def now_us(self) -> int:
        """Microseconds since 1970, if the machine's clock was right."""
        return self._epoch_us + time.monotonic_ns() // 1000


class BrokerTime:
    """A clock, real or virtual, held above the last time in the store; and the gaps between the runs of a broker."""

    def __init__(self, clock: Clock, database: Database) -> None:
        self.real_time, self.sleep = clock.real_time, clock.sleep
        self.call_later, self.deadline = clock.call_later, clock.deadline
        self._clock = clock
        self._database = database
        self._gaps: list[list[int]] = json.loads(
            database.get(GAPS, "[]")
        )  # from, to; in order, apart from each other
        self._changed = False
        last_us = self._floor_us = int(database.get(LAST, "0"))
        now_us = clock.now_us()
        if last_us and now_us > last_us:
            self._add(last_us, now_us)

    def now_us(self) -> int:
        """Time, which never goes back."""
        self._floor_us = max(self._floor_us, self._clock.now_us())
        return self._floor_us

    def _add(self, last_us: int, now_us: int) -> None:
        if now_us - last_us > JUMP_US:
            LOG.warning(
                "the broker last ran %.1f days ago, or the clock has jumped: no result or task expires for that",
                (now_us - last_us) / 86.4e9,
            )
        self._changed = True
        if self._gaps and last_us - self._gaps[-1][1] < MERGED_US:
            self._gaps[-1][1] = now_us
        else:
            self._gaps.append([last_us, now_us])

    def note(self, now_us: int) -> None:
        """The broker is still here: a later run counts its gap from now."""
        self._database.put(LAST, str(now_us))
        if self._changed:
            self._database.put(GAPS, json.dumps(self._gaps))
            self._changed = False

    def ago_us(self, now_us: int, seen_s: float) -> int:
        """The time from which on the broker has seen `seen_s` seconds pass until now."""
        left_us, until_us = round(seen_s * 1e6), now_us
        for began_us, ended_us in reversed(self._gaps):
            if until_us - ended_us >= left_us:
                break
            left_us -= until_us - ended_us
            until_us = began_us
        return until_us - left_us

    def forget(self, before_us: int) -> None:
        """Gaps that ended before this are no longer needed."""
        kept = [gap for gap in self._gaps if gap[1] >= before_us]
        self._changed = self._changed or len(kept) < len(self._gaps)
        self._gaps = kept

    def after_jumps_us(self, at_us: int) -> int:
        """A time that something is counted from, moved by the jumps since then."""
        jumps = [(began_us, ended_us) for began_us, ended_us in self._gaps if ended_us - began_us > JUMP_US]
        return at_us + sum(ended_us - max(began_us, at_us) for began_us, ended_us in jumps if ended_us > at_us)
