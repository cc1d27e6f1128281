"""The engine of a loaded cluster: rigid jobs are plain events, and a policy decides who starts."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from qloom.schedulers.policy import Policy, Resize
from qloom.schedulers.state import FOREVER_US, Entry, State


class Engine:
    """Takes jobs, asks the policy at every change, and ends rigid jobs when their time is over."""

    def __init__(self, state: State, policy: Policy, name: str) -> None:
        self.state = state
        self.ended: Callable[[Entry], None] = lambda entry: None
        self.started: Callable[[Entry], None] = lambda entry: None  # only for what ends by itself: hybrid jobs
        self.resized: Callable[[Resize], None] = lambda resize: None
        self._policy = policy
        self._name = name
        self._interval_us = round(policy.interval_s * 1e6)
        self._ends: list[tuple[int, int, Entry]] = []  # of rigid jobs that run
        self._next_tick_us = FOREVER_US
        self.next_us = FOREVER_US  # when the next thing is due by itself, as of the last `settle`
        self._changed = False

    def submit(self, entry: Entry) -> None:
        """A job, or a request of one, stands in line."""
        self.state.enter(entry)
        self._changed = True

    def touch(self) -> None:
        """Something was given back, or somebody left the line: have the policy look."""
        self._changed = True

    def advance(self, now_us: int) -> None:
        """Let the jobs end whose time is over. `settle` follows, once all that happens at this instant is told."""
        state, ends = self.state, self._ends
        state.now_us = now_us
        while ends and ends[0][0] <= now_us:
            _at_us, order, entry = heappop(ends)
            if entry.order == order:  # else it was killed
                state.end(entry)
                self.ended(entry)
                self._changed = True

    def settle(self) -> None:
        """Ask the policy, if there is a reason to."""
        state, ends = self.state, self._ends
        if state.waiting_count and (self._changed or state.now_us >= self._next_tick_us):
            self._changed = False
            if self._interval_us:
                self._tick()
            starts, resizes = self._policy.decide(state)
            if state.backfill:
                state.freed = False
            for entry, amounts in starts:
                state.start(entry, amounts, self._name)
                if entry.run_us >= 0:
                    heappush(ends, (state.now_us + entry.run_us, entry.order, entry))
                else:
                    self.started(entry)
            if resizes:
                for resize in resizes:
                    self.resized(resize)
            if state.arrived and state.backfill:
                state.sort_in()
        if not state.waiting_count:
            self._next_tick_us = FOREVER_US
        next_us = self._next_tick_us
        self.next_us = ends[0][0] if ends and ends[0][0] < next_us else next_us

    def _tick(self) -> None:
        """Whether this is a backfill pass, and when the next one is due."""
        state, interval_us = self.state, self._interval_us
        state.backfill = state.now_us >= self._next_tick_us
        if state.backfill or self._next_tick_us == FOREVER_US:
            self._next_tick_us = state.now_us - state.now_us % interval_us + interval_us

    def requeue(self, entry: Entry) -> None:
        """A rigid job lost a node: it is killed, and stands at the end of the line."""
        self.state.end(entry)
        entry.order = -1  # it will not end
        self.submit(Entry(entry.id, entry.line, entry.amounts, entry.limit_us, entry.run_us, entry.owner))
