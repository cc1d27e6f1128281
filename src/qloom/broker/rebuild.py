"""Puts what the store holds back into a queue core, after a restart.

Nothing is admitted anew here: what was accepted stays accepted, whatever the limits are by now. A task at the head
of its session has waited for an unknown number of tasks from outside, so none may go before it any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from qloom.broker import core
from qloom.broker.events import SessionRequested
from qloom.broker.ledger import Ledger
from qloom.broker.lines import SessionEntry, TaskEntry
from qloom.broker.promise import DeviceSpec
from qloom.broker.records import Live, LiveSession
from qloom.model import QpuHold


def new_core(devices: list[DeviceSpec], ledger: Ledger) -> core.QueueCore:
    """A queue core with nothing in it."""
    return core.QueueCore(devices, ledger)


def rebuild(queue: core.QueueCore, tasks: Sequence[Live], sessions: Sequence[LiveSession]) -> None:
    """`tasks` in the order they were accepted. No action comes out: tell the core that the devices are up."""
    for session in sessions:
        _restore_session(queue, session)
    for task in tasks:
        _restore_task(queue, task)
    own = {session.id: session for session in sessions}
    waiting = [task for task in tasks if task.state == "queued"]
    heads = [session.tasks[0] for session in queue._sessions.values() if session.tasks]
    turns = {head: own[queue._tasks[head].submitted.session or ""].turn_us for head in heads}
    for task in sorted(waiting, key=lambda task: max(task.submitted_us, turns.get(task.id, 0))):
        queue._tasks[task.id].order = queue._next_order()
    for head in heads:
        known = queue._tasks[head]
        known.outside_ahead = queue._devices[known.submitted.device].spec.outside_limit


def forget_attempt(queue: core.QueueCore, task: str) -> None:
    """The device never had this task: that was no attempt."""
    queue._tasks[task].attempts -= 1


def _restore_session(queue: core.QueueCore, session: LiveSession) -> None:
    known = SessionEntry(SessionRequested(session.id, session.device, session.hold, session.project, session.job))
    device = queue._devices[session.device]
    queue._sessions[session.id] = known
    queue.ledger.sessions[session.project] = queue.ledger.sessions.get(session.project, 0) + 1
    queue.ledger.jobs[session.job] = queue.ledger.jobs.get(session.job, 0) + 1
    if session.state == "open":
        known.is_open = True
        device.open[session.id] = None
        if session.hold is QpuHold.WHOLE:
            device.owner = session.id
    else:
        device.requests.append(session.id)


def _restore_task(queue: core.QueueCore, task: Live) -> None:
    submitted = task.submitted
    since_us = task.executing_us or task.started_us or task.submitted_us
    queue._tasks[task.id] = TaskEntry(submitted, task.state, 0, task.submitted_us, since_us, task.attempts)
    ledger = queue.ledger
    ledger.tasks[submitted.project] = ledger.tasks.get(submitted.project, 0) + 1
    ledger.reserved_s[submitted.project] = ledger.reserved_s.get(submitted.project, 0.0) + submitted.expected_s
    ledger.jobs[submitted.job] = ledger.jobs.get(submitted.job, 0) + 1
    device = queue._devices[submitted.device]
    if task.state != "queued":
        device.executing.append(task.id)
    elif submitted.session not in queue._sessions:
        device.outside[task.id] = None
    else:
        queue._sessions[submitted.session or ""].tasks.append(task.id)
