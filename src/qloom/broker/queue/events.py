"""Events that the queue core is given, and actions that it asks for. Plain values; times are whole microseconds."""

from __future__ import annotations

from qloom.broker.queue.task import Place, QuantumTask
from qloom.model import QpuHold, plain_value


@plain_value
class TaskSubmitted:
    """A task was submitted, from a session or from outside."""

    task: QuantumTask


@plain_value
class TaskCancelled:
    """A task is no longer wanted."""

    task: str
    why: str = ""  # if its owner did not ask for it


@plain_value
class TaskHeld:
    """An administrator holds a queued task: it is not started before it is released."""

    task: str


@plain_value
class TaskReleased:
    """A task that was held may run again; it goes to the end of its line."""

    task: str


@plain_value
class TaskRequeued:
    """A task is to be taken back from its device and queued again, as if it had just come."""

    task: str


@plain_value
class TaskAdvanced:
    """The device has moved a task on: preparing, vendor_queued or executing."""

    task: str
    state: str


@plain_value
class DeviceReleased:
    """The device is done with a task, so that another can start there; `TaskFinished` says how it ended."""

    task: str


@plain_value
class TaskFinished:
    """The device is done with a task: well, badly, by a fault of its own, or because it was stopped."""

    task: str
    ok: bool = True
    fault: bool = False  # the device's fault: the task is tried again, if it may be
    billed_s: float | None = None  # what the vendor charges; None: the time it was on the device
    attempted: bool = True  # False: the device never had it, so that was no attempt


@plain_value
class SessionRequested:
    """Somebody wants to hold a device, or a share of it."""

    session: str
    device: str
    hold: QpuHold
    project: str = ""
    job: str = ""
    idle_limit_s: float | None = None  # a hold of the whole device ends after so long without a task
    hold_limit_s: float | None = None  # and after so long in any case


@plain_value
class SessionClosed:
    """A session is over, or no longer wanted; its queued tasks are cancelled."""

    session: str
    why: str = ""  # if nobody asked for it


@plain_value
class DeviceUp:
    """A device came back, or went away: what runs there goes on, nothing new is started."""

    device: str
    up: bool
    away: bool = False  # it calibrates or is offline, rather than drained: execution does not count meanwhile


@plain_value
class SharesChanged:
    """A device is to offer another number of vQPUs: more at once, fewer as sessions end."""

    device: str
    shares: int


@plain_value
class TimePassed:
    """Nothing but that: tasks may have waited or run for too long."""


Event = (
    TaskSubmitted
    | TaskCancelled
    | TaskHeld
    | TaskReleased
    | TaskRequeued
    | TaskAdvanced
    | DeviceReleased
    | TaskFinished
    | SessionRequested
    | SessionClosed
    | DeviceUp
    | SharesChanged
    | TimePassed
)


@plain_value
class StartTask:
    """Give this task to its device now."""

    task: str
    device: str


@plain_value
class StopTask:
    """Take this task back from its device; `TaskFinished` must follow."""

    task: str


@plain_value
class OpenSession:
    """The session holds its device, or its share, from now on."""

    session: str


@plain_value
class EndTask:
    """A task has come to its final state; `reason` says why, unless it is done."""

    task: str
    state: str
    reason: str = ""


@plain_value
class MoveTask:
    """A queued task waits for another device from now on."""

    task: str
    place: Place
    places: tuple[Place, ...]  # where else it may run


@plain_value
class CountExecution:
    """Count execution against the limit of a task from `since_us` on (None: not for now); `ran_us` came before."""

    task: str
    ran_us: int
    since_us: int | None


@plain_value
class EndSession:
    """A session has reached a limit, and is closed."""

    session: str
    why: str


Action = StartTask | StopTask | OpenSession | EndTask | MoveTask | CountExecution | EndSession
