"""A quantum task as the queue knows it: what was submitted, and how far it has come.

Times are whole microseconds. Nothing here knows of users, payloads or the disk.
"""

from __future__ import annotations

from dataclasses import dataclass

ON_DEVICE = ("preparing", "vendor_queued", "executing")
FINAL = ("done", "failed", "cancelled", "expired")


@dataclass(frozen=True)
class Place:
    """A device that a task may run on, and what the task would take and cost there."""

    device: str
    expected_s: float = 0.0
    time_limit_s: float | None = None
    set_up: str | None = None


@dataclass(frozen=True)
class Counted:
    """What of a task's time and attempts counts against its limits; the store keeps it."""

    held_us: int | None = None  # since when it is held
    uncounted_us: int = 0  # from its submission until it was released, or queued anew: its wait began then
    spent: int = 0  # attempts before it was last queued anew
    ran_us: int = 0  # execution that counted before
    runs: bool = True  # whether execution counts now: the device is not away


NOTHING = Counted()


@dataclass(eq=False, slots=True)
class QuantumTask:
    """A task that is not over, from a session or from outside any."""

    id: str
    device: str
    session: str | None = None
    expected_s: float = 0.0
    project: str = ""
    job: str = ""
    priority: int = 0
    max_wait_s: float | None = None  # refused if it cannot be met, expired if it is exceeded
    time_limit_s: float | None = None  # of execution
    set_up: str | None = None  # tasks of a session with the same set-up may share a turn
    places: tuple[Place, ...] = ()  # where else it may run, if it is from outside any session

    state: str = "queued"
    number: int = 0  # tasks are numbered as they come
    order: int = 0  # its place among those that could run next
    queued_us: int = 0
    since_us: int = 0  # of the present state
    attempts: int = 0
    on_device_s: float = 0.0  # of the last attempt
    has_left_device: bool = False  # the device is done with it, and its answer is on the way
    outside_ahead: int = 0  # tasks from outside that were started while this one was the head of its session
    most_shares: int | None = None  # with more sessions its limit on waiting might not be kept; None: any number
    stopping: str = ""  # the state it will have once the device has stopped it
    reason: str = ""
    counted: Counted = NOTHING

    @property
    def reserved_s(self) -> float:
        """Seconds that a budget must have left for the task, wherever it runs."""
        longest_s = max(self.expected_s, 0.0)
        return max(longest_s, *(place.expected_s for place in self.places)) if self.places else longest_s

    @property
    def is_held(self) -> bool:
        """Whether an administrator holds it."""
        return self.counted.held_us is not None

    @property
    def tries(self) -> int:
        """Attempts since it was queued, or queued anew."""
        return self.attempts - self.counted.spent

    @property
    def waits_us(self) -> int:
        """Since when it has its place in the line."""
        return self.queued_us + self.counted.uncounted_us

    def executed_us(self, now_us: int) -> int:
        """Microseconds for which the task has executed, as far as they count against its limit."""
        if self.state != "executing":
            return 0
        return self.counted.ran_us + (now_us - self.since_us if self.counted.runs else 0)

    def deadline_us(self) -> int | None:
        """When it will have waited or executed for too long, as things are now."""
        if self.state == "queued" and self.max_wait_s is not None and not self.is_held:
            return self.waits_us + round(self.max_wait_s * 1e6) + 1  # a wait of exactly that length is allowed
        counts = self.state == "executing" and self.counted.runs and not (self.stopping or self.has_left_device)
        if counts and self.time_limit_s is not None:
            return self.since_us + round(self.time_limit_s * 1e6) - self.counted.ran_us
        return None

    def move(self, place: Place, *, back: bool) -> None:
        """Wait for another device from now on; `back` if the task may return."""
        here = Place(self.device, self.expected_s, self.time_limit_s, self.set_up)
        self.places = tuple(other for other in self.places if other is not place) + ((here,) if back else ())
        self.device, self.expected_s = place.device, place.expected_s
        self.time_limit_s, self.set_up = place.time_limit_s, place.set_up
