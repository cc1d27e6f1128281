"""What the queue core remembers: one entry per task and session, one line per device."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from qloom.broker.queue.events import SessionRequested, Submitted
from qloom.broker.queue.policies import Candidate
from qloom.broker.queue.promise import DeviceSpec


@dataclass(frozen=True)
class Counted:
    """What of a task's time and attempts counts against its limits; the store keeps it."""

    held_us: int | None = None  # since when it is held
    uncounted_us: int = 0  # from its submission until it was released, or queued anew: its wait began then
    spent: int = 0  # attempts before it was last queued anew
    ran_us: int = 0  # execution that counted before
    runs: bool = True  # whether execution counts now: the device is not away


NOTHING = Counted()


@dataclass
class TaskEntry:
    """A task that is not over."""

    submitted: Submitted
    state: str
    order: int
    queued_us: int
    since_us: int  # of the present state
    attempts: int = 0
    on_device_s: float = 0.0  # of the last attempt
    let_go: bool = False  # the device is done with it, and its answer is on the way
    outside_ahead: int = 0  # tasks from outside that were started while this one was the head of its session
    most_shares: int | None = None  # with more sessions its limit on waiting might not be kept; None: any number
    stopping: str = ""  # the state it will have once the device has let go of it
    reason: str = ""
    counted: Counted = NOTHING

    @property
    def is_held(self) -> bool:
        """Whether an administrator holds it."""
        return self.counted.held_us is not None

    @property
    def tries(self) -> int:
        """Attempts since it was queued, or queued anew."""
        return self.attempts - self.counted.spent

    def executed_us(self, now_us: int) -> int:
        """How long it has executed, as far as that counts."""
        if self.state != "executing":
            return 0
        return self.counted.ran_us + (now_us - self.since_us if self.counted.runs else 0)


@dataclass
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
        dues = []
        if idle_s is not None and self.idle_us is not None:
            why = f"it held the whole device for {idle_s:g} s without a task"
            dues.append((self.idle_us + round(idle_s * 1e6), why))
        if hold_s is not None:
            why = f"it held the whole device for {hold_s:g} s, the longest that is allowed"
            dues.append((self.opened_us + round(hold_s * 1e6), why))
        return min(dues, default=None)


@dataclass
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
    backlog_us: int = 0  # expected, of all that is queued or executing

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


def candidate(task: TaskEntry, now_us: int) -> Candidate:
    submitted = task.submitted
    waited_s = (now_us - task.queued_us) / 1e6
    return Candidate(submitted.task, task.order, submitted.project, submitted.priority, waited_s)


def deadline_us(task: TaskEntry) -> int | None:
    submitted, counted = task.submitted, task.counted
    if task.state == "queued" and submitted.max_wait_s is not None and not task.is_held:
        began_us = task.queued_us + counted.uncounted_us
        return began_us + round(submitted.max_wait_s * 1e6) + 1  # a wait of just so long is allowed
    counts = task.state == "executing" and counted.runs and not (task.stopping or task.let_go)
    if counts and submitted.time_limit_s is not None:
        return task.since_us + round(submitted.time_limit_s * 1e6) - counted.ran_us
    return None
