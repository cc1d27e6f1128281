"""What the queue core is told, and what it asks for. Plain values; times are whole microseconds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qloom.model import QpuHold

WAITING = ("queued",)
ON_DEVICE = ("preparing", "vendor_queued", "executing")
FINAL = ("done", "failed", "cancelled", "expired")


@dataclass(frozen=True)
class Place:
    """A device that a task may run on instead, and what it would be there."""

    device: str
    expected_s: float = 0.0
    time_limit_s: float | None = None
    set_up: str | None = None


@dataclass(frozen=True)
class Submitted:
    """A task has come, from a session or from outside."""

    task: str
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

    @property
    def reserved_s(self) -> float:
        """What a budget must have left for it, wherever it runs."""
        return max(self.expected_s, *(place.expected_s for place in self.places), 0.0)

    def moved(self, place: Place, *, back: bool) -> Submitted:
        """The same task elsewhere; `back` if it may return."""
        here = Place(self.device, self.expected_s, self.time_limit_s, self.set_up)
        places = tuple(other for other in self.places if other is not place) + ((here,) if back else ())
        return replace(
            self,
            device=place.device,
            expected_s=place.expected_s,
            time_limit_s=place.time_limit_s,
            set_up=place.set_up,
            places=places,
        )


@dataclass(frozen=True)
class Cancelled:
    """A task is no longer wanted."""

    task: str
    why: str = ""  # if its owner did not ask for it


@dataclass(frozen=True)
class Held:
    """An administrator holds a queued task: it is not started before it is released."""

    task: str


@dataclass(frozen=True)
class Released:
    """A task that was held may run again; it goes to the end of its line."""

    task: str


@dataclass(frozen=True)
class Requeued:
    """A task is to be taken back from its device and queued again, as if it had just come."""

    task: str


@dataclass(frozen=True)
class Advanced:
    """The device has moved a task on: preparing, vendor_queued or executing."""

    task: str
    state: str


@dataclass(frozen=True)
class LetGo:
    """The device is done with a task, so that another can start there; how it ended is told by `Finished`."""

    task: str


@dataclass(frozen=True)
class Finished:
    """The device is done with a task: well, badly, by a fault of its own, or because it was stopped."""

    task: str
    ok: bool = True
    fault: bool = False  # the device's fault: the task is tried again, if it may be
    billed_s: float | None = None  # what the vendor charges; None: the time it was on the device
    attempted: bool = True  # False: the device never had it, so that was no attempt


@dataclass(frozen=True)
class SessionRequested:
    """Somebody wants to hold a device, or a share of it."""

    session: str
    device: str
    hold: QpuHold
    project: str = ""
    job: str = ""
    idle_limit_s: float | None = None  # a hold of the whole device ends after so long without a task
    hold_limit_s: float | None = None  # and after so long in any case


@dataclass(frozen=True)
class SessionClosed:
    """A session is over, or no longer wanted; its queued tasks are cancelled."""

    session: str
    why: str = ""  # if nobody asked for it


@dataclass(frozen=True)
class DeviceUp:
    """A device came back, or went away: what runs there goes on, nothing new is started."""

    device: str
    up: bool
    away: bool = False  # it calibrates or is offline, rather than drained: execution does not count meanwhile


@dataclass(frozen=True)
class SharesChanged:
    """A device is to offer another number of vQPUs: more at once, fewer as sessions end."""

    device: str
    shares: int


@dataclass(frozen=True)
class TimePassed:
    """Nothing but that: tasks may have waited or run for too long."""


Event = (
    Submitted
    | Cancelled
    | Held
    | Released
    | Requeued
    | Advanced
    | LetGo
    | Finished
    | SessionRequested
    | SessionClosed
    | DeviceUp
    | SharesChanged
    | TimePassed
)


@dataclass(frozen=True)
class Start:
    """Give this task to its device now."""

    task: str
    device: str


@dataclass(frozen=True)
class Stop:
    """Take this task back from its device; `Finished` must follow."""

    task: str


@dataclass(frozen=True)
class SessionOpened:
    """The session holds its device, or its share, from now on."""

    session: str


@dataclass(frozen=True)
class Ended:
    """A task has come to its final state; `reason` says why, unless it is done."""

    task: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class Moved:
    """A queued task waits for another device from now on."""

    submitted: Submitted


@dataclass(frozen=True)
class Counting:
    """Execution of a task counts against its limit from `since_us` on, or not for now; `ran_us` was before."""

    task: str
    ran_us: int
    since_us: int | None


@dataclass(frozen=True)
class SessionEnded:
    """A session has reached a limit, and is closed."""

    session: str
    why: str


Action = Start | Stop | SessionOpened | Ended | Moved | Counting | SessionEnded
