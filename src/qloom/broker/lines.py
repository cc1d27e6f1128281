"""What the queue core remembers: one entry per task and session, one line per device."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from qloom.broker.events import SessionRequested, Submitted
from qloom.broker.policies import Candidate
from qloom.broker.promise import DeviceSpec


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


@dataclass
class SessionEntry:
    """A session that is open, or wants to be."""

    requested: SessionRequested
    is_open: bool = False
    tasks: deque[str] = field(default_factory=deque)  # queued ones
    turn_s: float = 0.0  # seconds of the present turn: expected ones, and those that were more
    set_up: str | None = None


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
    if task.state == "queued" and task.submitted.max_wait_s is not None:
        return task.queued_us + round(task.submitted.max_wait_s * 1e6) + 1  # a wait of just so long is allowed
    if task.state == "executing" and task.submitted.time_limit_s is not None and not (task.stopping or task.let_go):
        return task.since_us + round(task.submitted.time_limit_s * 1e6)
    return None
