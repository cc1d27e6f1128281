"""The dispatcher: carries out what the queue decides, on the devices and in the store.

An event goes to the queue core, which returns actions; each is carried out at once, in order. What is handed to a
device was made durable before (`handover.py`). After a crash the dispatcher takes up what the store holds: what
waited goes on waiting, and what was on a device is found again there. It knows nothing of callers and HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from qloom.aio import TaskScope
from qloom.broker.clock import BrokerTime
from qloom.broker.handover import DeviceOutcome, run_on_device, stop_on_device
from qloom.broker.problems import StoreFull
from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.events import (
    Action,
    CountExecution,
    DeviceReleased,
    EndSession,
    EndTask,
    Event,
    MoveTask,
    OpenSession,
    SessionClosed,
    StartTask,
    StopTask,
    TaskAdvanced,
    TaskCancelled,
    TaskFinished,
    TaskRequeued,
    TimePassed,
)
from qloom.broker.registry import TaskRegistry
from qloom.broker.store.records import SessionRecord, TaskRecord
from qloom.broker.store.session_store import SessionStore
from qloom.broker.store.task_store import TaskStore
from qloom.device import Device
from qloom.model import Payload

LOG = logging.getLogger("qloom.broker")
VAGUE = ("it failed", "the device failed")  # what the core says if it knows no more


class Dispatcher:
    """Keeps queue, registry, store and devices in step."""

    def __init__(
        self,
        core: QueueCore,
        registry: TaskRegistry,
        devices: Mapping[str, Device],
        task_store: TaskStore,
        session_store: SessionStore,
        time: BrokerTime,
    ) -> None:
        self._core, self._registry, self._devices = core, registry, devices
        self._store, self._session_store, self._time = task_store, session_store, time
        self._timer_us: int | None = None
        self._cancel_timer: Callable[[], None] = lambda: None
        self._scope = TaskScope(_log_failure)

    # After a restart

    def restore(self) -> None:
        """Take up what the store holds: what waits goes on waiting, what is on a device is found again there."""
        tasks, sessions = self._store.load_tasks(), self._session_store.load()
        here = [session for session in sessions if session.device in self._devices]
        registry = self._registry
        registry.sessions = {session.id: session for session in here}
        for session in sessions:
            session.used_us = self._time.now_us()
            session.limit_hold(self._core.ledger.project(session.project))
            if session.device not in self._devices:
                registry.close_session(session, f"QPU {session.device} is no longer there")
        registry.tasks = {task.id: task for task in tasks if task.device in self._devices}
        known = [task.restored(self._time.after_jumps_us) for task in registry.tasks.values()]
        self._core.restore([session.restored() for session in here], known, self._time.now_us())
        for task in tasks:
            if task.id not in registry.tasks:
                registry.end_task(task, "failed", f"QPU {task.device} is no longer there")
            elif task.token is not None:
                self.spawn(self._run(task))
        for task in list(registry.tasks.values()):
            if task.stop_wanted:
                task.stop_wanted = False
                again = task.wanted_again and task.state != "queued"
                self.handle(TaskRequeued(task.id) if again else TaskCancelled(task.id))
        if tasks or sessions:
            LOG.info("taken up again: %d tasks, %d sessions", len(registry.tasks), len(registry.sessions))

    # Events and actions

    def handle(self, event: Event) -> None:
        """Pass an event to the queue, and carry out what it decides."""
        self.carry_out(self._core.handle(event, self._time.now_us()))

    def carry_out(self, actions: list[Action]) -> None:
        """Carry out what the queue has decided, in order."""
        registry = self._registry
        for action in actions:
            match action:
                case StartTask(name):
                    registry.start_task(registry.tasks[name])
                    self.spawn(self._run(registry.tasks[name]))
                case StopTask(name):
                    self._stop(registry.tasks[name])
                case OpenSession(name):
                    registry.open_session(registry.sessions[name])
                case EndTask(name, state, reason):
                    task = registry.tasks[name]
                    registry.end_task(task, state, task.error if reason in VAGUE and task.error else reason)
                case MoveTask(name, place, places):
                    registry.move_task(registry.tasks[name], place, places)
                case CountExecution(name, ran_us, since_us):
                    self._store.count_execution(name, ran_us, since_us)
                case EndSession(name, why):
                    LOG.info("session %s is closed: %s", name, why)
                    registry.close_session(registry.sessions[name], why)
        if (next_us := self._core.next_deadline_us()) is not None:
            self._wake_by(next_us)

    def cancel(self, task: TaskRecord, why: str = "") -> None:
        """Take a task out of the queue, or back from its device; `why` is shown to its owner."""
        self._registry.want_back(task)
        self.handle(TaskCancelled(task.id, why))

    def close_session(self, session: SessionRecord, why: str = "") -> None:
        """End a session; `why` is shown to its users."""
        if why:
            LOG.info("session %s is closed: %s", session.id, why)
        self._registry.close_session(session, why)
        self.handle(SessionClosed(session.id, why))

    # Tasks on their devices

    def _stop(self, task: TaskRecord) -> None:
        task.stop_wanted = True
        if task.device_id is not None:  # otherwise whoever hands it over will see that it is not wanted
            self.spawn(stop_on_device(task, self._devices[task.device], self))

    async def _run(self, task: TaskRecord) -> None:
        try:
            outcome = await run_on_device(task, self._devices[task.device], self)
        except StoreFull:
            task.refused, outcome = True, DeviceOutcome(False, billed_s=0.0)
        except Exception as error:
            LOG.exception("task %s", task.id)
            outcome = DeviceOutcome(False, error=f"the broker failed: {type(error).__name__}")
        self._finish(task, outcome)

    def _finish(self, task: TaskRecord, outcome: DeviceOutcome) -> None:
        now_us = self._time.now_us()
        billed_s = self._used_s(task, outcome, now_us)
        if outcome.ok and task.executing_us is None:  # done before anybody could say so; all of it in one commit
            self.advance(task, "executing")
        self._store.end_handover(task, outcome.word, billed_s, now_us)
        attempted = not (outcome.unknown and task.reattached)
        if not attempted:
            task.attempts -= 1
        task.result, task.error, task.billed_s = outcome.result, outcome.error, (task.billed_s or 0.0) + billed_s
        actions = self._core.handle(TaskFinished(task.id, outcome.ok, outcome.fault, billed_s, attempted), now_us)
        if not any(isinstance(action, EndTask) and action.task == task.id for action in actions):
            self._registry.requeue_task(task, self._core.counted(task.id))
        self.carry_out(actions)

    def _used_s(self, task: TaskRecord, outcome: DeviceOutcome, now_us: int) -> float:
        """What an attempt is charged: what the vendor bills, else what was seen, else what the model says."""
        if outcome.billed_s is not None:
            return outcome.billed_s
        if task.executing_us is not None:
            return self._core.executed_s(task.id, now_us)
        return task.expected_s if outcome.ok else 0.0

    # What `run_on_device` writes down: see `HandoverLog`

    def sleep(self, seconds: float) -> Awaitable[None]:
        """See `HandoverLog.sleep`."""
        return self._time.sleep(seconds)

    def durable(self, task: TaskRecord) -> Awaitable[None]:
        """See `HandoverLog.durable`."""
        return self._store.durable(task.id)

    def payload(self, task: TaskRecord) -> Payload:
        """See `HandoverLog.payload`."""
        return self._store.payload(task.id)

    def hand_over(self, task: TaskRecord, device_id: str, state: str) -> None:
        """See `HandoverLog.hand_over`."""
        self._registry.hand_over(task, device_id, state)
        token = task.token

        def count(error: StoreFull | None) -> None:
            if not task.over and task.token == token and task.state == "preparing":
                self.advance(task, state, stored=True)

        self._store.then(count, task.id)

    def advance(self, task: TaskRecord, state: str, *, stored: bool = False) -> None:
        """See `HandoverLog.advance`; `stored` says that the store knows."""
        now_us = self._time.now_us()
        self._core.handle(TaskAdvanced(task.id, state), now_us)
        if (state := self._core.state(task.id)) == task.state:
            return
        self._registry.set_state(task, state, now_us, stored=stored)
        if state == "executing" and (next_us := self._core.next_deadline_us()) is not None:
            self._wake_by(next_us)

    def release_device(self, task: TaskRecord) -> None:
        """See `HandoverLog.release_device`."""
        self.handle(DeviceReleased(task.id))

    # Time, and what runs beside

    def _wake_by(self, at_us: int) -> None:
        """Something may be due then."""
        if self._timer_us is None or at_us < self._timer_us:
            self._cancel_timer()
            self._timer_us = at_us
            self._cancel_timer = self._time.deadline(max(0, at_us - self._time.now_us()) / 1e6, self._time_passed)

    def _time_passed(self) -> None:
        self._timer_us = None
        self.handle(TimePassed())
        soon_us = self._time.now_us() + 1000
        if self._timer_us is not None and self._timer_us < soon_us:  # a clock that is early must not keep us busy
            self._cancel_timer()
            self._timer_us = None
            self._wake_by(soon_us)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside, until the dispatcher is closed."""
        self._scope.spawn(work)

    async def close(self) -> None:
        """Stop everything here; tasks on devices go on, and are found again."""
        self._cancel_timer()
        await self._scope.aclose()


def _log_failure(failure: BaseException) -> None:
    LOG.error("the broker failed: %s", failure, exc_info=failure)
