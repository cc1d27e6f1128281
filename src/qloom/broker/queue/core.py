"""Who uses a device, and when: pure decisions. Events come in, actions go out; no I/O, no clock.

- Sessions of kind SHARE take turns, one task each; a session that has more to do goes to the back.
- A session of kind WHOLE holds all shares: only its tasks run until it is closed.
- Tasks from outside any session run in between, but only so many may go before a waiting session's task.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

from qloom.broker.queue.events import (
    Action,
    DeviceReleased,
    DeviceUp,
    EndSession,
    EndTask,
    Event,
    SessionClosed,
    SessionRequested,
    SharesChanged,
    StopTask,
    TaskAdvanced,
    TaskCancelled,
    TaskFinished,
    TaskHeld,
    TaskReleased,
    TaskRequeued,
    TaskSubmitted,
    TimePassed,
)
from qloom.broker.queue.lines import DeviceLine, SessionEntry
from qloom.broker.queue.policies import group
from qloom.broker.queue.serving import Serving
from qloom.broker.queue.task import FINAL, ON_DEVICE, Counted, QuantumTask
from qloom.errors import InputError, Refused
from qloom.model import QpuHold


class QueueCore(Serving):
    """The queues of all devices. After `restore`, `handle` is the only way to change them."""

    def handle(self, event: Event, now_us: int = 0) -> list[Action]:
        """Take one event in; what must be done now comes out, in order."""
        actions: list[Action] = []
        match event:
            case TaskSubmitted(task):
                device = self._submit(task, now_us)
            case TaskAdvanced(name, state):
                self._advance_task(name, state, now_us)
                return []
            case DeviceReleased(name):
                device = self._leave_device(self._tasks[name], now_us)
                self._next_head(device, self._tasks[name])
            case TaskFinished():
                device, actions = self._finish(event, now_us)
            case TaskCancelled(name, why):
                return self._cancel(name, why, now_us)
            case TaskHeld(name):
                device = self._hold(self._known(name), now_us)
            case TaskReleased(name):
                device, actions = self._release(self._known(name), now_us)
            case TaskRequeued(name):
                return self._requeue(self._known(name))
            case SessionRequested():
                device = self._request(event)
            case SessionClosed(name, why):
                if name not in self._sessions:
                    return []
                device, actions = self._close(name, "its session was closed" + (f": {why}" if why else ""))
            case DeviceUp(name, up, away):
                device = self._device(name)
                device.up, was_away, device.away = up, device.away, away
                actions = self._count_execution(device, now_us) if was_away != away else []
                actions += self._move_waiting(device, now_us)
            case SharesChanged(name, shares):
                device = self._device(name)
                device.spec = replace(device.spec, shares=shares)
            case TimePassed():
                return self._expire(now_us)
        return actions + self._serve(device, now_us)

    # Tasks

    def _submit(self, task: QuantumTask, now_us: int) -> DeviceLine:
        device = self._device(task.device)
        if task.id in self._tasks:
            raise InputError(f"quantum task {task.id} was submitted twice")
        session = self._sessions.get(task.session) if task.session is not None else None
        if task.session is not None and session is None:
            raise Refused(f"quantum task {task.id}: its session {task.session} is closed", hint="open another")
        longest_s = device.spec.longest_s
        owns_it = task.session is not None and device.owner == task.session
        if longest_s is not None and task.expected_s > longest_s and not owns_it:
            raise Refused(
                f"a task of {task.expected_s:g} s is longer than QPU {task.device} admits ({longest_s:g} s)",
                hint="fewer shots, or hold the whole device",
            )
        if task.max_wait_s is not None:
            self._require_wait(device, task.session, task.max_wait_s)
        self.ledger.admit_task(task.project, task.job, task.reserved_s, now_us)
        task.order = self._next_order()
        task.queued_us = task.since_us = now_us
        self._add(task)
        if session is None:
            device.wait_outside(task.id, group(device.spec.policy, task))
        else:
            task.most_shares = self._most_shares(device, session, task)
            session.tasks.append(task.id)
            if len(session.tasks) == 1:
                self._become_head(device, session)
        return device

    def _require_wait(self, device: DeviceLine, session: str | None, max_wait_s: float) -> None:
        """Refuse a task that would wait too long, behind others of its session too: surely, if that can be said."""
        name = device.spec.name
        longest_s = self.longest_wait_s(name, session) if session is not None else None
        wait_s = self.expected_wait_s(name, session) if longest_s is None else longest_s
        if wait_s <= max_wait_s:
            return
        start = "would start this task in about" if longest_s is None else "can promise to start this task within"
        own = len(self._before(device, self._sessions[session])) if session is not None else 0
        behind = f": {own} of its session {'go' if own > 1 else 'goes'} before it" if own else ""
        raise Refused(f"QPU {name} {start} {wait_s:.4g} s, not within {max_wait_s:g} s{behind}")

    def _advance_task(self, name: str, state: str, now_us: int) -> None:
        task = self._tasks.get(name)
        if task is None or task.state not in ON_DEVICE or state not in ON_DEVICE:
            story = f"it is {task.state}" if task is not None else "it is over or unknown"
            raise InputError(f"quantum task {name} cannot become {state}: {story}")
        if ON_DEVICE.index(state) > ON_DEVICE.index(task.state):
            task.state, task.since_us = state, now_us
            self._note_deadline(task)

    def _known(self, name: str) -> QuantumTask:
        try:
            return self._tasks[name]
        except KeyError:
            raise Refused(f"quantum task {name} is over or unknown") from None

    # What administrators do

    def _hold(self, task: QuantumTask, now_us: int) -> DeviceLine:
        name, device = task.id, self._device(task.device)
        if task.state != "queued":
            raise Refused(f"quantum task {name} is on QPU {device.spec.name}", hint="requeue it, then hold it")
        if not task.is_held:
            self._leave_line(device, task, now_us)
            self._count_backlog(task, -1)
            task.counted = replace(task.counted, held_us=now_us)
            if (session := self._sessions.get(task.session or "")) is not None:
                session.held[name] = None
        return device

    def _release(self, task: QuantumTask, now_us: int) -> tuple[DeviceLine, list[Action]]:
        """To the end of its line, as if it had just come: promises made meanwhile did not count it."""
        device = self._device(task.device)
        if not task.is_held:
            return device, []
        task.counted = replace(task.counted, held_us=None, uncounted_us=now_us - task.queued_us)
        task.order, task.most_shares = self._next_order(), None
        self._count_backlog(task, 1)
        self._note_deadline(task)
        if (session := self._sessions.get(task.session or "")) is None:
            device.wait_outside(task.id, group(device.spec.policy, task))
            return device, self._move_waiting(device, now_us)
        del session.held[task.id]
        session.tasks.append(task.id)
        if len(session.tasks) == 1:
            self._become_head(device, session)
        return device, []

    def _requeue(self, task: QuantumTask) -> list[Action]:
        if task.state == "queued":
            raise Refused(f"quantum task {task.id} is queued already")
        if task.stopping not in ("", "queued"):
            raise Refused(f"quantum task {task.id} is being taken back for good")
        return self._stop(task, "queued", "")

    # The ends of tasks

    def _cancel(self, name: str, why: str, now_us: int) -> list[Action]:
        task = self._tasks.get(name)
        if task is None:
            return []
        device = self._device(task.device)
        if task.state != "queued":
            return self._stop(task, "cancelled", why)
        if not task.is_held:
            self._leave_line(device, task, now_us)
        return [self._end(name, "cancelled", why), *self._serve(device, now_us)]

    def _stop(self, task: QuantumTask, state: str, reason: str) -> list[Action]:
        already, task.stopping, task.reason = task.stopping, state, reason
        return [] if already else [StopTask(task.id)]

    def _finish(self, event: TaskFinished, now_us: int) -> tuple[DeviceLine, list[Action]]:
        task = self._tasks[event.task]
        device = self._leave_device(task, now_us)
        if not event.attempted:
            task.attempts -= 1
        billed_s = task.on_device_s if event.billed_s is None else event.billed_s
        self.ledger.charge(task.project, billed_s, now_us)
        if task.stopping == "queued":  # unless it was done before it could be taken back
            if not event.ok:
                self._queue_anew(device, task, now_us)
                return device, self._move_waiting(device, now_us)
            task.stopping = ""
        if task.stopping == "failed" and event.ok and billed_s <= (task.time_limit_s or 0.0):
            task.stopping = task.reason = ""  # it was done within its limit, and we were late to hear of it
        if event.fault and not task.stopping and task.tries <= device.spec.retries:
            self._try_again(device, task, now_us)
            return device, self._move_waiting(device, now_us)
        if event.fault and not task.stopping and task.places:
            task.state, task.since_us, task.has_left_device = "queued", now_us, False
            task.counted = Counted(task.counted.held_us, task.counted.uncounted_us, spent=task.attempts)
            self._note_deadline(task)
            return device, self._move(task, task.places, now_us, back=False)
        state = task.stopping or ("done" if event.ok and not event.fault else "failed")
        reason = task.reason or ("" if state != "failed" else "the device failed" if event.fault else "it failed")
        ended = self._end(event.task, state, reason)
        self._next_head(device, task)
        return device, [ended]

    def _end(self, name: str, state: str, reason: str) -> EndTask:
        assert state in FINAL  # noqa: S101
        task = self._remove(name)
        if (session := self._sessions.get(task.session or "")) is not None:
            session.held.pop(name, None)
        self.ledger.settle_task(task.project, task.job, task.reserved_s)
        return EndTask(name, state, reason)

    def _expire(self, now_us: int) -> list[Action]:
        actions: list[Action] = []
        for session, due_us, why in self._holds():
            if due_us <= now_us:
                device, ended = self._close(session, f"its session was closed: {why}")
                actions += [*ended, EndSession(session, why), *self._serve(device, now_us)]
        while self.next_deadline_us() is not None and self._deadlines and self._deadlines[0][0] <= now_us:
            _, name = heapq.heappop(self._deadlines)
            task = self._tasks[name]
            if task.state == "queued":
                device = self._device(task.device)
                self._leave_line(device, task, now_us)
                reason = f"it waited longer than {task.max_wait_s:g} s"
                actions += [self._end(name, "expired", reason), *self._serve(device, now_us)]
            else:
                actions += self._stop(task, "failed", f"it ran longer than {task.time_limit_s:g} s")
        return actions

    # Sessions

    def _request(self, event: SessionRequested) -> DeviceLine:
        device = self._device(event.device)
        if event.session in self._sessions or event.hold is QpuHold.TASK:
            raise InputError(f"session {event.session} cannot be opened: it is open, or holds nothing")
        self.ledger.admit_session(event.project, event.job, whole=event.hold is QpuHold.WHOLE)
        self._sessions[event.session] = SessionEntry(event)
        device.requests.append(event.session)
        return device

    def _close(self, name: str, why: str) -> tuple[DeviceLine, list[Action]]:
        session = self._sessions.pop(name)
        device = self._device(session.requested.device)
        actions: list[Action] = [self._end(task, "cancelled", why) for task in (*session.tasks, *session.held)]
        for task in list(device.executing):
            if self._tasks[task].session == name:
                actions += self._stop(self._tasks[task], "cancelled", why)
        device.open.pop(name, None)
        if name in device.requests:
            device.requests.remove(name)
        if device.owner == name:
            device.owner, device.after_whole = None, True
        requested = session.requested
        self.ledger.end_session(requested.project, requested.job, whole=requested.hold is QpuHold.WHOLE)
        return device, actions
