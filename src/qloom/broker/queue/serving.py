"""Which session is opened and which task is started next, of those that wait for a device."""

from __future__ import annotations

from dataclasses import replace

from qloom.broker.queue.events import Action, OpenSession, StartTask
from qloom.broker.queue.lines import DeviceLine, SessionEntry
from qloom.broker.queue.policies import Candidate, group, policy
from qloom.broker.queue.state import QueueState
from qloom.broker.queue.task import QuantumTask
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
        rule = policy(device.spec.policy)
        return min(
            [*heads, *outside], key=lambda task: rule(_candidate(task, now_us), self.ledger.usage), default=None
        )

    def _heads(self, device: DeviceLine) -> list[str]:
        """The next task of each session whose turn may come: a session runs one task at a time."""
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
        task.counted = replace(task.counted, ran_us=0, runs=True)
        return StartTask(name, task.device)

    def _take_turn(self, device: DeviceLine, session: SessionEntry, task: QuantumTask) -> None:
        """Tasks with the same set-up may share a turn, as long as it cannot last longer than one task may."""
        continues = session.set_up is not None and session.set_up == task.set_up
        session.turn_s = task.expected_s + (session.turn_s if continues else 0.0)
        session.set_up = task.set_up

    def _become_head(self, device: DeviceLine, session: SessionEntry) -> None:
        """A new head goes to the back of the line, with the tasks from outside that run now ahead of it.

        While a task of its session executes it is not in the line: that it becomes head is told again after that.
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


def _candidate(task: QuantumTask, now_us: int) -> Candidate:
    return Candidate(task.id, task.order, task.project, task.priority, (now_us - task.queued_us) / 1e6)
