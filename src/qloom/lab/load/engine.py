"""The engine of a loaded cluster: rigid jobs are plain events, and a policy decides who starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from qloom.errors import PolicyError
from qloom.lab.schedulers.policy import Policy, Resize, Start, checked_amounts, virtual_time
from qloom.lab.schedulers.state import FOREVER_US, Entry, State, Unstartable

IDLE_DAYS = 7  # a policy that lets jobs wait on an idle cluster for longer will never start them
IDLE_US = IDLE_DAYS * 24 * 3600 * 10**6
MOST_FRUITLESS = 1_000_000  # decisions that a policy asks for by itself, with no start or change in between


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
        self._again_us = FOREVER_US  # when the policy wants to be asked, even if nothing changes
        self._idle_since_us = FOREVER_US  # since when nothing runs although jobs wait
        self._fruitless = 0
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
        """Let the jobs end whose time is over. `settle` follows when all that happens at this instant is known."""
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
        if state.waiting_count and (
            self._changed or state.now_us >= self._next_tick_us or state.now_us >= self._again_us
        ):
            if self._changed:
                self._fruitless, self._changed = 0, False
            if self._interval_us:
                self._tick()
            asked_again = state.now_us >= self._again_us
            starts, resizes, self._again_us = self._policy.decide(state)
            if state.backfill:
                state.freed = False
            if starts:
                self._start(starts)
            else:
                if not state.running:
                    self._see_idle()
                if asked_again:
                    self._see_fruitless()
            if resizes:
                for resize in resizes:
                    self.resized(resize)
            if state.arrived and state.backfill:
                state.sort_in()
        if not state.waiting_count:
            self._next_tick_us = self._again_us = self._idle_since_us = FOREVER_US
        next_us = self._next_tick_us
        if self._again_us < next_us:
            next_us = self._again_us
        self.next_us = ends[0][0] if ends and ends[0][0] < next_us else next_us

    def _start(self, starts: Sequence[Start]) -> None:
        state, ends = self.state, self._ends
        self._idle_since_us, self._fruitless = FOREVER_US, 0
        try:
            for entry, amounts in starts:
                if amounts is not entry.amounts:
                    amounts = checked_amounts(entry, amounts)
                state.start(entry, amounts)
                if entry.run_us >= 0:
                    heappush(ends, (state.now_us + entry.run_us, entry.order, entry))
                else:
                    self.started(entry)
        except Unstartable as error:
            raise PolicyError(
                f"policy {self._name} {error}, {virtual_time(state.now_us)}",
                hint="start each job of state.waiting at most once, with entry.amounts, while they are free",
            ) from None

    def _see_idle(self) -> None:
        """Nothing runs and jobs wait: a policy may want that for a while, but not for ever."""
        now_us = self.state.now_us
        self._idle_since_us = min(self._idle_since_us, now_us)
        if now_us - self._idle_since_us > max(IDLE_US, 2 * self._interval_us):
            self.refuse_to_wait()

    def _see_fruitless(self) -> None:
        """A policy may look at the clock now and then, but the run shall end."""
        self._fruitless += 1
        if self._fruitless > MOST_FRUITLESS:
            raise PolicyError(
                f"policy {self._name} asked for {MOST_FRUITLESS} decisions in a row and started nobody, "
                f"{virtual_time(self.state.now_us)}",
                hint="set again_us to the time at which a job can start: every change asks the policy in any case",
            )

    def refuse_to_wait(self) -> None:
        """Name the policy if a job waits that fits into what is free."""
        for entry in self.state.waiting:
            wanted = zip(entry.line.resources, entry.amounts, strict=True)
            if all(amount <= resource.free for resource, amount in wanted):
                raise PolicyError(
                    f"policy {self._name} starts nobody: job {entry.id} waits and there is room for it, "
                    f"{virtual_time(self.state.now_us)}",
                    hint=f"an idle cluster has to start a job that fits within {IDLE_DAYS} days",
                )

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
