"""What the queue core knows of all lines: looking at it, and taking it up again after a restart."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from qloom.broker.events import SessionRequested, Submitted
from qloom.broker.ledger import Ledger
from qloom.broker.lines import DeviceLine, SessionEntry, TaskEntry, deadline_us
from qloom.broker.policies import group
from qloom.broker.promise import DeviceSpec
from qloom.errors import InputError
from qloom.model import QpuHold


@dataclass(frozen=True)
class KnownSession:
    """A session as it was: asked for, or open."""

    requested: SessionRequested
    is_open: bool
    turn_us: int = 0  # when a task of it was last started


@dataclass(frozen=True)
class KnownTask:
    """A task as it was: queued, or on its device in one of the states there."""

    submitted: Submitted
    state: str
    attempts: int
    queued_us: int
    since_us: int


class QueueState:
    """Lines, sessions and tasks."""

    def __init__(self, devices: Sequence[DeviceSpec], ledger: Ledger | None = None) -> None:
        self._devices = {spec.name: DeviceLine(spec) for spec in devices}
        self._sessions: dict[str, SessionEntry] = {}
        self._tasks: dict[str, TaskEntry] = {}
        self._deadlines: list[tuple[int, str]] = []  # a heap; what no longer holds is dropped when it is seen
        self._orders = 0
        self.ledger = ledger or Ledger()

    def restore(self, sessions: Sequence[KnownSession], tasks: Sequence[KnownTask]) -> None:
        """Take up what was accepted, `tasks` in the order they were: nothing is admitted anew, no action comes out.

        A task at the head of its session has waited for an unknown number of tasks from outside, so none may go
        before it any more. Tell the core next that the devices are up.
        """
        for session in sessions:
            self._restore_session(session)
        for task in tasks:
            self._restore_task(task)
        turns_us = {session.requested.session: session.turn_us for session in sessions}
        asked_us = {task.submitted.task: task.queued_us for task in tasks if task.state == "queued"}
        for name, entry in self._sessions.items():
            if entry.tasks:
                head = self._tasks[entry.tasks[0]]
                head.outside_ahead = self._device(head.submitted.device).spec.outside_limit
                asked_us[entry.tasks[0]] = max(head.queued_us, turns_us[name])
        for waiting in sorted(asked_us, key=lambda task: asked_us[task]):
            self._tasks[waiting].order = self._next_order()

    def _restore_session(self, known: KnownSession) -> None:
        requested = known.requested
        device = self._device(requested.device)
        self._sessions[requested.session] = SessionEntry(requested, known.is_open)
        self.ledger.take_session(requested.project, requested.job)
        if not known.is_open:
            device.requests.append(requested.session)
            return
        device.open[requested.session] = None
        if requested.hold is QpuHold.WHOLE:
            device.owner = requested.session

    def _restore_task(self, known: KnownTask) -> None:
        submitted = known.submitted
        task = TaskEntry(submitted, known.state, 0, known.queued_us, known.since_us, known.attempts)
        device, session = self._add(task), self._sessions.get(submitted.session or "")
        self.ledger.take_task(submitted.project, submitted.job, submitted.expected_s)
        if known.state != "queued":
            device.executing.append(submitted.task)
        elif session is not None:
            session.tasks.append(submitted.task)
        else:
            device.wait_outside(submitted.task, group(device.spec.policy, submitted))

    def _add(self, task: TaskEntry) -> DeviceLine:
        device = self._device(task.submitted.device)
        self._tasks[task.submitted.task] = task
        device.backlog_us += round(task.submitted.expected_s * 1e6)
        self._note_deadline(task)
        return device

    def _remove(self, name: str) -> Submitted:
        submitted = self._tasks.pop(name).submitted
        self._device(submitted.device).backlog_us -= round(submitted.expected_s * 1e6)
        return submitted

    # Looking

    def is_up(self, device: str) -> bool:
        """Whether new tasks are started there."""
        return self._device(device).up

    def state(self, task: str) -> str:
        """The state of a task that is not over."""
        return self._tasks[task].state

    def shares(self, device: str) -> int:
        """How many vQPUs a device offers."""
        return self._device(device).spec.shares

    def owner(self, device: str) -> str | None:
        """The session that holds the whole device, if one does."""
        return self._device(device).owner

    def backlog_s(self, device: str) -> float:
        """Expected seconds of work that is queued or on a device."""
        return self._device(device).backlog_us / 1e6

    def expected_wait_s(self, device: str) -> float:
        """About how long a new task would wait."""
        return self.backlog_s(device) / self._device(device).spec.lanes

    def ahead(self, task: str) -> tuple[int, float]:
        """How many tasks of its device came before this one and are not over, and about how long they take."""
        device = self._device(self._tasks[task].submitted.device).spec
        before = itertools.takewhile(lambda name: name != task, self._tasks)
        ahead_s = [
            known.expected_s for name in before if (known := self._tasks[name].submitted).device == device.name
        ]
        return len(ahead_s), sum(ahead_s) / device.lanes

    def is_idle(self) -> bool:
        """Whether nothing is queued, executing or held on any device."""
        return not self._tasks and not self._sessions

    def next_deadline_us(self) -> int | None:
        """When `TimePassed` should be told at the latest."""
        while self._deadlines and not self._is_due(*self._deadlines[0]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _is_due(self, at_us: int, name: str) -> bool:
        """Whether a deadline still holds: the task is not over, and in the state that it was meant for."""
        task = self._tasks.get(name)
        return task is not None and deadline_us(task) == at_us

    def _note_deadline(self, task: TaskEntry) -> None:
        if (due_us := deadline_us(task)) is not None:
            heapq.heappush(self._deadlines, (due_us, task.submitted.task))

    def _next_order(self) -> int:
        self._orders += 1
        return self._orders

    def _device(self, name: str) -> DeviceLine:
        try:
            return self._devices[name]
        except KeyError:
            raise InputError(f"no QPU is called {name!r}", hint=f"there is: {', '.join(self._devices)}") from None
