"""Who uses a device, and when: pure decisions. Events come in, actions go out; no I/O, no clock.

- Sessions of kind SHARE take turns, one task each; a session that has more to do goes to the back.
- A session of kind WHOLE holds all shares: only its tasks run until it is closed.
- Tasks from outside any session run in between, but only so many may go before a waiting session's task.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

from qloom.broker.events import (
    FINAL,
    ON_DEVICE,
    Action,
    Advanced,
    Cancelled,
    DeviceUp,
    Ended,
    Event,
    Finished,
    LetGo,
    SessionClosed,
    SessionOpened,
    SessionRequested,
    SharesChanged,
    Start,
    Stop,
    Submitted,
    TimePassed,
)
from qloom.broker.lines import DeviceLine, SessionEntry, TaskEntry, candidate
from qloom.broker.policies import group, policy
from qloom.broker.state import QueueState
from qloom.errors import InputError, Refused
from qloom.model import QpuHold


class QueueCore(QueueState):
    """All lines. `handle` is the only way to change them, once they are as they were."""

    def handle(self, event: Event, now_us: int = 0) -> list[Action]:
        """Take one event in; what must be done now comes out, in order."""
        actions: list[Action] = []
        match event:
            case Submitted():
                device = self._submit(event, now_us)
            case Cancelled(name, why):
                return self._cancel(name, why, now_us)
            case Advanced(name, state):
                self._advance_task(name, state, now_us)
                return []
            case LetGo(name):
                device = self._let_go(self._tasks[name], now_us)
                self._next_head(device, self._tasks[name])
            case Finished():
                device, actions = self._finish(event, now_us)
            case SessionRequested():
                device = self._request(event)
            case SessionClosed(name, why):
                if name not in self._sessions:
                    return []
                device, actions = self._close(name, "its session was closed" + (f": {why}" if why else ""))
            case DeviceUp(name, up):
                device = self._device(name)
                device.up = up
            case SharesChanged(name, shares):
                device = self._device(name)
                device.spec = replace(device.spec, shares=shares)
            case TimePassed():
                return self._expire(now_us)
        return actions + self._serve(device, now_us)

    # Tasks

    def _submit(self, event: Submitted, now_us: int) -> DeviceLine:
        device = self._device(event.device)
        if event.task in self._tasks:
            raise InputError(f"quantum task {event.task} was submitted twice")
        session = self._sessions.get(event.session) if event.session is not None else None
        if event.session is not None and session is None:
            raise Refused(f"quantum task {event.task}: its session {event.session} is closed", hint="open another")
        longest_s = device.spec.longest_s
        owns_it = event.session is not None and device.owner == event.session
        if longest_s is not None and event.expected_s > longest_s and not owns_it:
            raise Refused(
                f"a task of {event.expected_s:g} s is longer than QPU {event.device} admits ({longest_s:g} s)",
                hint="fewer shots, or hold the whole device",
            )
        if event.max_wait_s is not None:
            self._require_wait(device, event.session, event.max_wait_s)
        self.ledger.admit_task(event.project, event.job, event.expected_s, now_us)
        task = TaskEntry(event, "queued", self._next_order(), now_us, now_us)
        self._add(task)
        if session is None:
            device.wait_outside(event.task, group(device.spec.policy, event))
        else:
            task.most_shares = self._most_shares(device, session, event)
            session.tasks.append(event.task)
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

    def _cancel(self, name: str, why: str, now_us: int) -> list[Action]:
        task = self._tasks.get(name)
        if task is None:
            return []
        device = self._device(task.submitted.device)
        if task.state != "queued":
            return self._stop(task, "cancelled", why)
        self._leave_line(device, task, now_us)
        return [self._end(name, "cancelled", why), *self._serve(device, now_us)]

    def _stop(self, task: TaskEntry, state: str, reason: str) -> list[Action]:
        already, task.stopping, task.reason = task.stopping, state, reason
        return [] if already else [Stop(task.submitted.task)]

    def _leave_line(self, device: DeviceLine, task: TaskEntry, now_us: int) -> None:
        name, session = task.submitted.task, task.submitted.session
        if session is None:
            device.leave_outside(name, group(device.spec.policy, task.submitted))
        elif session in self._sessions:
            tasks = self._sessions[session].tasks
            was_head = tasks[0] == name
            tasks.remove(name)
            if was_head and tasks:
                self._become_head(device, self._sessions[session])

    def _let_go(self, task: TaskEntry, now_us: int) -> DeviceLine:
        """The device is free for the next task, if it was not so before."""
        name, device = task.submitted.task, self._device(task.submitted.device)
        if name in device.executing:
            device.executing.remove(name)
            task.on_device_s = (now_us - task.since_us) / 1e6 if task.state == "executing" else 0.0
            if (session := self._sessions.get(task.submitted.session or "")) is not None:
                session.turn_s += max(0.0, task.on_device_s - task.submitted.expected_s)
        return device

    def _next_head(self, device: DeviceLine, task: TaskEntry) -> None:
        """A task has left the device for good: the next of its session may stand in line."""
        session = self._sessions.get(task.submitted.session or "")
        if session is not None and session.tasks and not task.let_go:
            self._become_head(device, session)
        task.let_go = True

    def _finish(self, event: Finished, now_us: int) -> tuple[DeviceLine, list[Action]]:
        task = self._tasks[event.task]
        device = self._let_go(task, now_us)
        if not event.attempted:
            task.attempts -= 1
        billed_s = task.on_device_s if event.billed_s is None else event.billed_s
        self.ledger.charge(task.submitted.project, billed_s, now_us)
        if event.fault and not task.stopping and task.attempts <= device.spec.retries:
            self._try_again(device, task, now_us)
            return device, []
        state = task.stopping or ("done" if event.ok and not event.fault else "failed")
        reason = task.reason or ("" if state != "failed" else "the device failed" if event.fault else "it failed")
        ended = self._end(event.task, state, reason)
        self._next_head(device, task)
        return device, [ended]

    def _try_again(self, device: DeviceLine, task: TaskEntry, now_us: int) -> None:
        """Back to where it was: the place in the line is kept, so it is the first that can run."""
        task.state, task.since_us = "queued", now_us
        self._note_deadline(task)
        name, session = task.submitted.task, self._sessions.get(task.submitted.session or "")
        if session is not None:
            session.tasks.appendleft(name)
        else:
            device.wait_outside(name, group(device.spec.policy, task.submitted), first=True)

    def _end(self, name: str, state: str, reason: str) -> Ended:
        assert state in FINAL  # noqa: S101
        submitted = self._remove(name)
        self.ledger.settle_task(submitted.project, submitted.job, submitted.expected_s)
        return Ended(name, state, reason)

    def _expire(self, now_us: int) -> list[Action]:
        actions: list[Action] = []
        while (due_us := self.next_deadline_us()) is not None and due_us <= now_us:
            _, name = heapq.heappop(self._deadlines)
            task = self._tasks[name]
            if task.state == "queued":
                device = self._device(task.submitted.device)
                self._leave_line(device, task, now_us)
                reason = f"it waited longer than {task.submitted.max_wait_s:g} s"
                actions += [self._end(name, "expired", reason), *self._serve(device, now_us)]
            else:
                actions += self._stop(task, "failed", f"it ran longer than {task.submitted.time_limit_s:g} s")
        return actions

    # Sessions

    def _request(self, event: SessionRequested) -> DeviceLine:
        device = self._device(event.device)
        if event.session in self._sessions or event.hold is QpuHold.TASK:
            raise InputError(f"session {event.session} cannot be opened: it is open, or holds nothing")
        self.ledger.admit_session(event.project, event.job)
        self._sessions[event.session] = SessionEntry(event)
        device.requests.append(event.session)
        return device

    def _close(self, name: str, why: str) -> tuple[DeviceLine, list[Action]]:
        session = self._sessions.pop(name)
        device = self._device(session.requested.device)
        actions: list[Action] = [self._end(task, "cancelled", why) for task in session.tasks]
        for task in list(device.executing):
            if self._tasks[task].submitted.session == name:
                actions += self._stop(self._tasks[task], "cancelled", why)
        device.open.pop(name, None)
        if name in device.requests:
            device.requests.remove(name)
        if device.owner == name:
            device.owner = None
        self.ledger.end_session(session.requested.project, session.requested.job)
        return device, actions

    # Serving

    def _serve(self, device: DeviceLine, now_us: int) -> list[Action]:
        """Open and start what can be."""
        actions: list[Action] = []
        while device.requests and self._can_open(device, self._sessions[device.requests[0]]):
            name = device.requests.popleft()
            session = self._sessions[name]
            session.is_open = True
            device.open[name] = None
            if session.requested.hold is QpuHold.WHOLE:
                device.owner = name
            actions.append(SessionOpened(name))
            if session.tasks:
                self._become_head(device, session)
        while device.up and len(device.executing) < device.spec.lanes:
            task = self._next_task(device, now_us)
            if task is None:
                break
            actions.append(self._start(device, task, now_us))
        return actions

    def _can_open(self, device: DeviceLine, session: SessionEntry) -> bool:
        if session.requested.hold is QpuHold.WHOLE:
            return device.up and not device.open and not device.executing
        taken = self._taken(device)
        if device.owner is not None or taken >= device.spec.shares:
            return False
        queued = (self._tasks[task] for name in device.open for task in self._sessions[name].tasks)
        if any(task.most_shares is not None and taken >= task.most_shares for task in queued):
            return False  # its limit on waiting was accepted when there were fewer shares
        return self._outside_running(device) <= device.spec.outside_limit

    def _next_task(self, device: DeviceLine, now_us: int) -> TaskEntry | None:
        if device.owner is not None:
            own = self._sessions[device.owner].tasks
            return self._tasks[own[0]] if own else None
        heads = [self._tasks[head] for head in self._heads(device)]
        limit = device.spec.outside_limit
        patient = all(head.outside_ahead < limit for head in heads)
        if device.open:  # one that runs already would go before a session's task that comes next
            patient = patient and self._outside_running(device) < limit
        whole_is_next = bool(device.requests) and self._is_whole(device.requests[0]) and not device.open
        firsts = device.first_outside() if patient and not whole_is_next else []
        outside = [self._tasks[name] for name in firsts]
        rule = policy(device.spec.policy)
        return min(
            [*heads, *outside], key=lambda task: rule(candidate(task, now_us), self.ledger.usage), default=None
        )

    def _heads(self, device: DeviceLine) -> list[str]:
        """The next task of each session whose turn may come: a session runs one task at a time."""
        active = {self._tasks[task].submitted.session for task in device.executing}
        return [
            self._sessions[name].tasks[0] for name in device.open if self._sessions[name].tasks and name not in active
        ]

    def _start(self, device: DeviceLine, task: TaskEntry, now_us: int) -> Start:
        name, session = task.submitted.task, task.submitted.session
        if session is None:
            device.leave_outside(name, group(device.spec.policy, task.submitted))
            if task.attempts == 0:  # a retry is part of the time that is allowed for it
                for head in self._heads(device):
                    self._tasks[head].outside_ahead += 1
        else:
            self._sessions[session].tasks.popleft()
            self._take_turn(device, self._sessions[session], task)
        device.executing.append(name)
        task.state, task.since_us, task.attempts = "preparing", now_us, task.attempts + 1
        return Start(name, task.submitted.device)

    def _take_turn(self, device: DeviceLine, session: SessionEntry, task: TaskEntry) -> None:
        """Tasks with the same set-up may share a turn, as long as it cannot last longer than one task may."""
        continues = session.set_up is not None and session.set_up == task.submitted.set_up
        session.turn_s = task.submitted.expected_s + (session.turn_s if continues else 0.0)
        session.set_up = task.submitted.set_up

    def _become_head(self, device: DeviceLine, session: SessionEntry) -> None:
        """A new head goes to the back of the line, with the tasks from outside that run now ahead of it.

        While a task of its session executes it is not in the line: that it becomes head is told again after that.
        """
        if any(self._tasks[task].submitted.session == session.requested.session for task in device.executing):
            return
        head = self._tasks[session.tasks[0]]
        slowest_s, limit_s = device.spec.slowest_s, head.submitted.time_limit_s
        same_turn = (
            slowest_s is not None
            and session.set_up is not None
            and session.set_up == head.submitted.set_up
            and session.turn_s + (head.submitted.expected_s if limit_s is None else limit_s) <= slowest_s
        )
        head.order = 0 if same_turn else self._next_order()
        head.outside_ahead = self._outside_running(device)
        if not same_turn:
            session.set_up, session.turn_s = None, 0.0

    def _outside_running(self, device: DeviceLine) -> int:
        return sum(1 for task in device.executing if self._tasks[task].submitted.session is None)

    def _is_whole(self, session: str) -> bool:
        return self._sessions[session].requested.hold is QpuHold.WHOLE
