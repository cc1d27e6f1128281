"""What the queue core knows of all lines: looking at it, and taking it up again after a restart."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from qloom.broker.queue.events import SessionRequested
from qloom.broker.queue.lines import DeviceLine, DeviceSpec, SessionEntry
from qloom.broker.queue.policies import Ledger, group
from qloom.broker.queue.task import Counted, QuantumTask
from qloom.errors import InputError
from qloom.model import QpuHold


@dataclass(frozen=True)
class KnownSession:
    """A session as it was: asked for, or open."""

    requested: SessionRequested
    is_open: bool
    turn_us: int = 0  # when a task of it was last started
    opened_us: int = 0
    used_us: int = 0  # when a task of it was last there


class QueueState:
    """Lines, sessions and tasks."""

    def __init__(self, devices: Sequence[DeviceSpec], ledger: Ledger | None = None) -> None:
        self._devices = {spec.name: DeviceLine(spec) for spec in devices}
        self._sessions: dict[str, SessionEntry] = {}
        self._tasks: dict[str, QuantumTask] = {}
        self._deadlines: list[tuple[int, str]] = []  # a heap; what no longer holds is dropped when it is seen
        self._orders = 0
        self._numbers = 0
        self.ledger = ledger or Ledger()

    def restore(self, sessions: Sequence[KnownSession], tasks: Sequence[QuantumTask], now_us: int = 0) -> None:
        """Take up what was accepted, `tasks` in the order they were: nothing is admitted anew, no action comes out.

        A task at the head of its session has waited for an unknown number of tasks from outside, so none may go
        before it any more; and perhaps for others whose sessions have a next head by now, so the session that has
        gone longest without a turn is first, from when it was opened on. `DeviceUp` must follow for each device.
        """
        for session in sessions:
            self._restore_session(session)
        for task in sorted(tasks, key=lambda task: task.waits_us):
            self._restore_task(task, now_us)
        turns_us = {session.requested.session: (session.opened_us, session.turn_us) for session in sessions}
        asked_us = {task.id: (task.waits_us, 0, 0) for task in tasks if task.state == "queued"}
        for name, entry in self._sessions.items():
            if entry.tasks:
                head = self._tasks[entry.tasks[0]]
                head.outside_ahead = self._device(head.device).spec.outside_limit
                asked_us[entry.tasks[0]] = (max(turns_us[name]), turns_us[name][1], head.queued_us)
        for waiting in sorted(asked_us, key=lambda task: asked_us[task]):
            self._tasks[waiting].order = self._next_order()

    def _restore_session(self, known: KnownSession) -> None:
        requested = known.requested
        device = self._device(requested.device)
        entry = self._sessions[requested.session] = SessionEntry(requested, known.is_open, opened_us=known.opened_us)
        entry.idle_us = max(known.opened_us, known.used_us)
        self.ledger.take_session(requested.project, requested.job, whole=requested.hold is QpuHold.WHOLE)
        if not known.is_open:
            device.requests.append(requested.session)
            return
        device.open[requested.session] = None
        if requested.hold is QpuHold.WHOLE:
            device.owner = requested.session

    def _restore_task(self, task: QuantumTask, now_us: int) -> None:
        device, session = self._add(task), self._sessions.get(task.session or "")
        self.ledger.take_task(task.project, task.job, task.reserved_s)
        if session is not None:
            session.idle_us = None
        if task.state != "queued":
            device.executing.append(task.id)
            device.away = device.away or not task.counted.runs  # as it was; how it is comes next
        elif task.is_held:
            if session is not None:
                session.held[task.id] = None
        elif session is not None:
            task.most_shares = self._most_shares(device, session, task, (now_us - task.waits_us) / 1e6)
            session.tasks.append(task.id)
        else:
            device.wait_outside(task.id, group(device.spec.policy, task))

    def _add(self, task: QuantumTask) -> DeviceLine:
        device = self._device(task.device)
        self._numbers += 1
        task.number = self._numbers
        self._tasks[task.id] = task
        self._count_backlog(task, 1)
        self._note_deadline(task)
        return device

    def _remove(self, name: str) -> QuantumTask:
        task = self._tasks.pop(name)
        self._count_backlog(task, -1)
        return task

    def _count_backlog(self, task: QuantumTask, sign: int) -> None:
        """A task comes to its device's line, or leaves it; one that is held is no work to wait for."""
        backlog = self._device(task.device).backlog
        if task.is_held:
            return
        if sign > 0:
            backlog.add(task.number, round(task.expected_s * 1e6))
        else:
            backlog.remove(task.number)

    # Looking

    def is_up(self, device: str) -> bool:
        """Whether new tasks are started there."""
        return self._device(device).up

    def knows(self, task: str) -> bool:
        """Whether a task is here and not over."""
        return task in self._tasks

    def state(self, task: str) -> str:
        """The state of a task that is not over."""
        return self._tasks[task].state

    def counted(self, task: str) -> Counted:
        """What of a task's time and attempts counts."""
        return self._tasks[task].counted

    def executed_s(self, task: str, now_us: int) -> float:
        """Seconds for which the current attempt of a task has executed, as far as they count against its limit."""
        entry = self._tasks[task]
        there = task in self._device(entry.device).executing
        return entry.executed_us(now_us) / 1e6 if there else entry.on_device_s

    def shares(self, device: str) -> int:
        """How many vQPUs a device offers."""
        return self._device(device).spec.shares

    def owner(self, device: str) -> str | None:
        """The session that holds the whole device, if one does."""
        return self._device(device).owner

    def backlog_s(self, device: str) -> float:
        """Expected seconds of work that is queued or on a device."""
        return self._device(device).backlog.total_us / 1e6

    def expected_wait_s(self, device: str, session: str | None = None) -> float:
        """Estimate how long a new task, in this session or outside of any, would wait."""
        line = self._device(device)
        own = self._before(line, self._sessions[session]) if session is not None else []
        own_s = sum(task.expected_s for task in own)
        if session is not None and line.owner == session:
            return own_s
        return max(self.backlog_s(device) / line.spec.lanes, own_s)

    def ahead(self, task: str) -> tuple[int, float]:
        """How many tasks of its device came before this one and are not over, and about how long they take."""
        entry = self._tasks[task]
        line = self._device(entry.device)
        count, ahead_us = line.backlog.before(entry.number)
        return count, ahead_us / 1e6 / line.spec.lanes

    def promised_wait_s(self, device: str) -> float | None:
        """The longest wait of a task at the head of its session; None if nothing can be promised."""
        line = self._device(device)
        return line.spec.promised_wait_s(max(line.spec.shares, self._taken(line)))

    def longest_wait_s(self, device: str, session: str) -> float | None:
        """The longest that a new task of a session can wait, behind its other tasks; None if nobody can say."""
        line, entry = self._device(device), self._sessions[session]
        own = self._before(line, entry)
        if line.owner == session:
            if not line.spec.bounded:
                return None
            limits_s = [limit_s for task in own if (limit_s := task.time_limit_s) is not None]
            return sum(limits_s) * (1 + line.spec.retries) if len(limits_s) == len(own) else None
        turn_s = self.promised_wait_s(device) if entry.is_open else None
        return None if turn_s is None else turn_s * (len(entry.tasks) + 1) + _execution_s(line.spec, own)

    def _most_shares(
        self, device: DeviceLine, session: SessionEntry, task: QuantumTask, waited_s: float = 0.0
    ) -> int | None:
        """How many sessions may be open for the limit on waiting of a session's last task to be kept for certain.

        None if that does not depend on it. At least as many as there are: after a restart nobody knows for how long
        the tasks before it have run already, so the limit may be kept though it does not look like it.
        """
        shares = device.spec.promised_wait_s() is not None and device.owner is None and session.is_open
        if task.max_wait_s is None or not shares:
            return None
        left_s = task.max_wait_s - waited_s - _execution_s(device.spec, self._before(device, session))
        most = device.spec.most_shares(left_s / (len(session.tasks) + 1))
        return max(most, self._taken(device))

    def _before(self, device: DeviceLine, session: SessionEntry) -> list[QuantumTask]:
        """Tasks of a session that are on the device or queued."""
        name = session.requested.session
        running = [task for task in device.executing if self._tasks[task].session == name]
        return [self._tasks[task] for task in (*running, *session.tasks)]

    def _taken(self, device: DeviceLine) -> int:
        """Shares in use: by open sessions, and by tasks of closed sessions until they have left the device."""
        if (slowest_s := device.spec.slowest_s) is None:
            return len(device.open)
        taken = len(device.open)
        for task in (self._tasks[name] for name in device.executing):
            if task.session is not None and task.session not in self._sessions:
                bounded = task.time_limit_s is not None and task.time_limit_s <= slowest_s
                taken += 1 if bounded else device.spec.shares
        return taken

    def is_idle(self) -> bool:
        """Whether nothing is queued, executing or held on any device."""
        return not self._tasks and not self._sessions

    def next_deadline_us(self) -> int | None:
        """When `TimePassed` is due at the latest."""
        while self._deadlines and not self._is_due(*self._deadlines[0]):
            heapq.heappop(self._deadlines)
        next_us = self._deadlines[0][0] if self._deadlines else None
        for device in self._devices.values():
            if device.owner is not None and (due := self._sessions[device.owner].due_us()) is not None:
                next_us = due[0] if next_us is None else min(next_us, due[0])
        return next_us

    def _holds(self) -> list[tuple[str, int, str]]:
        """Sessions that hold a whole device, when they must give it back, and why."""
        owners = [device.owner for device in self._devices.values() if device.owner is not None]
        dues = [(owner, self._sessions[owner].due_us()) for owner in owners]
        return [(owner, *due) for owner, due in dues if due is not None]

    def _is_due(self, at_us: int, name: str) -> bool:
        """Whether a deadline still holds: the task is not over, and in the state that it was meant for."""
        task = self._tasks.get(name)
        return task is not None and task.deadline_us() == at_us

    def _note_deadline(self, task: QuantumTask) -> None:
        if (due_us := task.deadline_us()) is not None:
            heapq.heappush(self._deadlines, (due_us, task.id))

    def _next_order(self) -> int:
        self._orders += 1
        return self._orders

    def _device(self, name: str) -> DeviceLine:
        try:
            return self._devices[name]
        except KeyError:
            raise InputError(f"no QPU is called {name!r}", hint=f"there is: {', '.join(self._devices)}") from None


def _execution_s(spec: DeviceSpec, tasks: Sequence[QuantumTask]) -> float:
    """The longest that tasks of a share can be on a device that promises a wait, one after the other."""
    limits_s = [task.time_limit_s for task in tasks]
    slowest_s = spec.slowest_s or 0.0
    return sum(slowest_s if limit_s is None else limit_s for limit_s in limits_s) * (1 + spec.retries)
