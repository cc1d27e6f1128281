"""Who uses a device, and when: pure decisions. Events come in, actions go out; no I/O, no clock.

One line per device, first come first served. In it stand
- single tasks from outside any session,
- sessions of kind SHARE, one turn at a time: a session that has more to do goes to the back of the line, so
  that N sessions never wait for more than N - 1 tasks of others,
- requests for the device as a whole: once granted, only that session's tasks run until it is closed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from qloom.errors import InputError
from qloom.model import QpuHold


@dataclass(frozen=True)
class DeviceSpec:
    """What the queue has to know of a device."""

    name: str
    shares: int = 8  # vQPUs: sessions of kind SHARE at once
    lanes: int = 1  # tasks that the device itself runs at once


@dataclass(frozen=True)
class Submitted:
    """A task has come, from a session or from outside."""

    task: str
    device: str
    session: str | None = None
    expected_s: float = 0.0


@dataclass(frozen=True)
class Cancelled:
    """A task is no longer wanted."""

    task: str


@dataclass(frozen=True)
class Finished:
    """The device is done with a task, well or badly, or has stopped it."""

    task: str


@dataclass(frozen=True)
class SessionRequested:
    """Somebody wants to hold a device, or a share of it."""

    session: str
    device: str
    hold: QpuHold


@dataclass(frozen=True)
class SessionClosed:
    """A session is over, or no longer wanted."""

    session: str


@dataclass(frozen=True)
class DeviceUp:
    """A device came back, or went away: what runs there goes on, nothing new is started."""

    device: str
    up: bool


Event = Submitted | Cancelled | Finished | SessionRequested | SessionClosed | DeviceUp


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


Action = Start | Stop | SessionOpened


@dataclass
class _Session:
    id: str
    device: str
    hold: QpuHold
    is_open: bool = False
    tasks: deque[str] = field(default_factory=deque)


@dataclass
class _Device:
    spec: DeviceSpec
    up: bool = True
    line: deque[tuple[str, str]] = field(default_factory=deque)  # ("task" | "turn" | "whole", id)
    wanting_a_share: deque[str] = field(default_factory=deque)
    shares_used: int = 0
    owner: str | None = None
    executing: list[str] = field(default_factory=list)


class QueueCore:
    """The state of all lines. `handle` is the only way to change it."""

    def __init__(self, devices: list[DeviceSpec]) -> None:
        self._devices = {spec.name: _Device(spec) for spec in devices}
        self._sessions: dict[str, _Session] = {}
        self._tasks: dict[str, Submitted] = {}

    def handle(self, event: Event) -> list[Action]:
        """Take one event in; what must be done now comes out, in order."""
        match event:
            case Submitted():
                device = self._submit(event)
            case Cancelled():
                submitted = self._tasks.get(event.task)
                if submitted is None:
                    return []
                device = self._device(submitted.device)
                if event.task in device.executing:
                    return [Stop(event.task)]
                self._forget_queued(device, submitted)
            case Finished():
                submitted = self._tasks.pop(event.task)
                device = self._device(submitted.device)
                device.executing.remove(event.task)
                self._queue_turn(device, submitted.session)
            case SessionRequested():
                device = self._request(event)
            case SessionClosed():
                session = self._sessions.pop(event.session, None)
                if session is None:
                    return []
                device = self._close(session)
            case DeviceUp():
                device = self._device(event.device)
                device.up = event.up
        return self._advance(device)

    def is_up(self, device: str) -> bool:
        """Whether new tasks are started there."""
        return self._device(device).up

    def backlog_s(self, device: str) -> float:
        """Expected seconds of work that is queued or executing on a device."""
        return sum(task.expected_s for task in self._tasks.values() if task.device == device)

    def position(self, task: str) -> int:
        """How many tasks of its device were submitted before this one and are not done; 0: it is next or runs."""
        device = self._tasks[task].device
        ahead = [name for name, queued in self._tasks.items() if queued.device == device]
        return ahead.index(task)

    def is_idle(self) -> bool:
        """Whether nothing is queued, executing or held on any device."""
        return not self._tasks and not self._sessions

    def _device(self, name: str) -> _Device:
        try:
            return self._devices[name]
        except KeyError:
            raise InputError(f"no QPU is called {name!r}", hint=f"there is: {', '.join(self._devices)}") from None

    def _submit(self, event: Submitted) -> _Device:
        device = self._device(event.device)
        if event.task in self._tasks:
            raise InputError(f"quantum task {event.task} was submitted twice")
        if event.session is not None and event.session not in self._sessions:
            raise InputError(f"quantum task {event.task}: its session {event.session} is closed")
        self._tasks[event.task] = event
        if event.session is None:
            device.line.append(("task", event.task))
        else:
            session = self._sessions[event.session]
            session.tasks.append(event.task)
            if len(session.tasks) == 1 and not self._executes(device, session.id):
                self._queue_turn(device, session.id)
        return device

    def _request(self, event: SessionRequested) -> _Device:
        device = self._device(event.device)
        if event.session in self._sessions or event.hold is QpuHold.TASK:
            raise InputError(f"session {event.session} cannot be opened: it is open, or holds nothing")
        self._sessions[event.session] = _Session(event.session, event.device, event.hold)
        if event.hold is QpuHold.WHOLE:
            device.line.append(("whole", event.session))
        else:
            device.wanting_a_share.append(event.session)
        return device

    def _close(self, session: _Session) -> _Device:
        device = self._device(session.device)
        for task in session.tasks:
            del self._tasks[task]
        if device.owner == session.id:
            device.owner = None
        elif session.hold is QpuHold.SHARE and session.is_open:
            device.shares_used -= 1
        if session.id in device.wanting_a_share:
            device.wanting_a_share.remove(session.id)
        device.line = deque(entry for entry in device.line if entry[1] != session.id)
        return device

    def _forget_queued(self, device: _Device, submitted: Submitted) -> None:
        del self._tasks[submitted.task]
        if submitted.session is None:
            device.line.remove(("task", submitted.task))
            return
        session = self._sessions[submitted.session]
        session.tasks.remove(submitted.task)
        if not session.tasks and ("turn", session.id) in device.line:
            device.line.remove(("turn", session.id))

    def _executes(self, device: _Device, session: str) -> bool:
        return any(self._tasks[task].session == session for task in device.executing)

    def _queue_turn(self, device: _Device, session: str | None) -> None:
        """An open session of kind SHARE with something to do stands in line once; an owner needs no turn."""
        if session is None or session not in self._sessions:
            return
        entry = ("turn", session)
        shares = self._sessions[session].hold is QpuHold.SHARE and self._sessions[session].is_open
        if shares and self._sessions[session].tasks and entry not in device.line:
            device.line.append(entry)

    def _advance(self, device: _Device) -> list[Action]:
        """Open and start what can be, in the order of the line."""
        actions: list[Action] = []
        while device.wanting_a_share and device.shares_used < device.spec.shares:
            session = self._sessions[device.wanting_a_share.popleft()]
            session.is_open = True
            device.shares_used += 1
            actions.append(SessionOpened(session.id))
            self._queue_turn(device, session.id)  # what it was given while it waited
        while device.up and len(device.executing) < device.spec.lanes:
            if device.owner is not None:
                own = self._sessions[device.owner].tasks
                if not own:
                    break
                actions.append(self._start(device, own.popleft()))
                continue
            if not device.line:
                break
            kind, name = device.line[0]
            if kind == "whole":
                if device.executing:
                    break
                device.owner = name
                self._sessions[name].is_open = True
                actions.append(SessionOpened(name))
            elif kind == "turn":
                actions.append(self._start(device, self._sessions[name].tasks.popleft()))
            else:
                actions.append(self._start(device, name))
            device.line.popleft()
        return actions

    def _start(self, device: _Device, task: str) -> Start:
        device.executing.append(task)
        return Start(task, device.spec.name)
