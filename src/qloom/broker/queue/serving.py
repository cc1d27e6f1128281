"""Which session is opened and which task is started next, and how tasks leave a line or stand in one again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qloom.broker.queue.events import Action, CountExecution, MoveTask, OpenSession, StartTask
from qloom.broker.queue.lines import DeviceLine, SessionEntry
from qloom.broker.queue.policies import Candidate, group, policy
from qloom.broker.queue.state import QueueState
from qloom.broker.queue.task import Counted, Place, QuantumTask
from qloom.model import QpuHold


class Serving(QueueState):
    """The lines, and who is next in each."""

    def _serve(self, device: DeviceLine, now_us: int) -> list[Action]:
        """Open and start what can be."""
        actions: list[Action] = []
        while device.requests and self._can_open(device, self._sessions[device.requests[0]]):
            name = device.requests.popleft()
            session = self._sessions[name]
            session.is_open, session.opened_us = True, now_us
            device.open[name] = None
            if session.requested.hold is QpuHold.WHOLE:
                device.owner = name
            actions.append(OpenSession(name))
            if session.tasks:
                self._become_head(device, session)
        while device.up and len(device.executing) < device.spec.lanes:
            task = self._next_task(device, now_us)
            if task is None:
                break
            actions.append(self._start(device, task, now_us))
        if device.owner is not None:
            self._note_idle(device, self._sessions[device.owner], now_us)
        return actions

    def _note_idle(self, device: DeviceLine, owner: SessionEntry, now_us: int) -> None:
        """Since when the session that holds the whole device has had nothing to do there."""
        name = owner.requested.session
        busy = bool(owner.tasks or owner.held)
        if busy or any(self._tasks[task].session == name for task in device.executing):
            owner.idle_us = None
        elif owner.idle_us is None:
            owner.idle_us = now_us

    def _can_open(self, device: DeviceLine, session: SessionEntry) -> bool:
        if session.requested.hold is QpuHold.WHOLE:
            if device.after_whole and device.outside:
                return False  # whoever asks for whole holds again and again lets others in between
            return device.up and not device.open and not device.executing
        taken = self._taken(device)
        if device.owner is not None or taken >= device.spec.shares:
            return False
        queued = (self._tasks[task] for name in device.open for task in self._sessions[name].tasks)
        if any(task.most_shares is not None and taken >= task.most_shares for task in queued):
            return False  # its limit on waiting was accepted when there were fewer shares
        return self._outside_running(device) <= device.spec.outside_limit

    def _next_task(self, device: DeviceLine, now_us: int) -> QuantumTask | None:
        if device.owner is not None:
            own = self._sessions[device.owner].tasks
            return self._tasks[own[0]] if own else None
        heads = [self._tasks[head] for head in self._heads(device)]
        limit = device.spec.outside_limit
        patient = all(head.outside_ahead < limit for head in heads)
        if device.open:  # one that runs already would go before a session's task that comes next
            patient = patient and self._outside_running(device) < limit
        whole_is_next = bool(device.requests) and self._is_whole(device.requests[0]) and not device.open
        whole_is_next = whole_is_next and not device.after_whole
        firsts = device.first_outside() if patient and not whole_is_next else []
        outside = [self._tasks[name] for name in firsts]
        candidates = [*heads, *outside]
        if len(candidates) <= 1:
            return candidates[0] if candidates else None
        rule = policy(device.spec.policy)
        return min(candidates, key=lambda task: rule(_candidate(task, now_us), self.ledger.usage))

    def _heads(self, device: DeviceLine) -> list[str]:
        """The next task of each session whose turn may come: a session runs one task at a time."""
        if not device.open:
            return []
        active = {self._tasks[task].session for task in device.executing}
        return [
            self._sessions[name].tasks[0] for name in device.open if self._sessions[name].tasks and name not in active
        ]

    def _start(self, device: DeviceLine, task: QuantumTask, now_us: int) -> StartTask:
        name, session = task.id, task.session
        if session is None:
            device.leave_outside(name, group(device.spec.policy, task))
            device.after_whole = False
            if task.tries == 0:  # a retry is part of the time that is allowed for it
                for head in self._heads(device):
                    self._tasks[head].outside_ahead += 1
        else:
            self._sessions[session].tasks.popleft()
            self._take_turn(device, self._sessions[session], task)
        device.executing.append(name)
        task.state, task.since_us, task.attempts = "preparing", now_us, task.attempts + 1
        if task.counted.ran_us or not task.counted.runs:
            task.counted = replace(task.counted, ran_us=0, runs=True)
        return StartTask(name, task.device)

    def _take_turn(self, device: DeviceLine, session: SessionEntry, task: QuantumTask) -> None:
        """Tasks with the same set-up may share a turn, as long as it cannot last longer than one task may."""
        continues = session.set_up is not None and session.set_up == task.set_up
        session.turn_s = task.expected_s + (session.turn_s if continues else 0.0)
        session.set_up = task.set_up

    def _become_head(self, device: DeviceLine, session: SessionEntry) -> None:
        """A new head goes to the back of the line, with the tasks from outside that run now ahead of it.

        While a task of its session executes it is not in the line: it becomes head anew after that.
        """
        if any(self._tasks[task].session == session.requested.session for task in device.executing):
            return
        head = self._tasks[session.tasks[0]]
        slowest_s, limit_s = device.spec.slowest_s, head.time_limit_s
        same_turn = (
            slowest_s is not None
            and session.set_up is not None
            and session.set_up == head.set_up
            and session.turn_s + (head.expected_s if limit_s is None else limit_s) <= slowest_s
        )
        head.order = 0 if same_turn else self._next_order()
        head.outside_ahead = self._outside_running(device)
        if not same_turn:
            session.set_up, session.turn_s = None, 0.0

    def _outside_running(self, device: DeviceLine) -> int:
        return sum(1 for task in device.executing if self._tasks[task].session is None)

    def _is_whole(self, session: str) -> bool:
        return self._sessions[session].requested.hold is QpuHold.WHOLE

    # Tasks that leave a line or a device

    def _leave_line(self, device: DeviceLine, task: QuantumTask, now_us: int) -> None:
        name, session = task.id, task.session
        if session is None:
            device.leave_outside(name, group(device.spec.policy, task))
        elif session in self._sessions:
            tasks = self._sessions[session].tasks
            was_head = tasks[0] == name
            tasks.remove(name)
            if was_head and tasks:
                self._become_head(device, self._sessions[session])

    def _leave_device(self, task: QuantumTask, now_us: int) -> DeviceLine:
        """The device is free for the next task, if it was not so before."""
        name, device = task.id, self._device(task.device)
        if name in device.executing:
            device.executing.remove(name)
            task.on_device_s = task.executed_us(now_us) / 1e6
            if (session := self._sessions.get(task.session or "")) is not None:
                session.turn_s += max(0.0, task.on_device_s - task.expected_s)
        return device

    def _next_head(self, device: DeviceLine, task: QuantumTask) -> None:
        """Put the next task of a session in line, now that one has left the device for good."""
        session = self._sessions.get(task.session or "")
        if session is not None and session.tasks and not task.has_left_device:
            self._become_head(device, session)
        task.has_left_device = True

    # Tasks that stand in line again

    def _try_again(self, device: DeviceLine, task: QuantumTask, now_us: int) -> None:
        """Back to where it was: the place in the line is kept, so it is the first that can run."""
        task.state, task.since_us = "queued", now_us
        self._note_deadline(task)
        name, session = task.id, self._sessions.get(task.session or "")
        if session is not None:
            session.tasks.appendleft(name)
        else:
            device.wait_outside(name, group(device.spec.policy, task), first=True)

    def _queue_anew(self, device: DeviceLine, task: QuantumTask, now_us: int) -> None:
        """As if it had just come: its attempts and its wait begin again."""
        name, session = task.id, self._sessions.get(task.session or "")
        task.state, task.since_us, task.stopping, task.reason = "queued", now_us, "", ""
        task.counted = Counted(uncounted_us=now_us - task.queued_us, spent=task.attempts)
        had_left, task.has_left_device = task.has_left_device, False
        task.order, task.most_shares = self._next_order(), None
        self._note_deadline(task)
        if session is None:
            device.wait_outside(name, group(device.spec.policy, task))
        else:
            session.tasks.append(name)
            if not had_left or len(session.tasks) == 1:
                self._become_head(device, session)

    # Devices that are away

    def _count_execution(self, device: DeviceLine, now_us: int) -> list[Action]:
        """A device went away or came back: in between, execution does not count against the limits of its tasks."""
        actions: list[Action] = []
        for task in (self._tasks[name] for name in device.executing):
            if task.state != "executing" or task.counted.runs is not device.away:
                continue
            task.counted = replace(task.counted, ran_us=task.executed_us(now_us), runs=not device.away)
            task.since_us = now_us
            self._note_deadline(task)
            since_us = None if device.away else now_us
            actions.append(CountExecution(task.id, task.counted.ran_us, since_us))
        return actions

    def _move_waiting(self, device: DeviceLine, now_us: int) -> list[Action]:
        """Move tasks that may run elsewhere from a device that is down to one that is up."""
        lines = self._devices.values() if device.up else [device]
        waiting = [name for line in lines if not line.up for tasks in line.outside.values() for name in tasks]
        actions: list[Action] = []
        for task in (self._tasks[name] for name in waiting):
            places = [place for place in task.places if self._device(place.device).up]
            if places:
                self._leave_line(self._device(task.device), task, now_us)
                actions += self._move(task, places, now_us, back=True)
        return actions

    def _move(self, task: QuantumTask, places: Sequence[Place], now_us: int, *, back: bool) -> list[Action]:
        """Move a task to the device that would start it first."""
        place = min(places, key=lambda one: (not self.is_up(one.device), self.expected_wait_s(one.device)))
        self._count_backlog(task, -1)
        was_reserved_s = task.reserved_s
        task.move(place, back=back)
        self._count_backlog(task, 1)
        self.ledger.change_reserve(task.project, was_reserved_s, task.reserved_s)
        task.order = self._next_order()
        device = self._device(place.device)
        device.wait_outside(task.id, group(device.spec.policy, task))
        return [MoveTask(task.id, place, task.places), *self._serve(device, now_us)]


def _candidate(task: QuantumTask, now_us: int) -> Candidate:
    return Candidate(task.id, task.order, task.project, task.priority, (now_us - task.queued_us) / 1e6)
