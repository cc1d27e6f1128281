"""The dispatcher: carries out what the queue decides, on the devices and in the records of tasks and sessions.

An event goes to the queue core, which returns actions; each is carried out at once, in order. The service and the
broker of a run both have one: the registry that a dispatcher is given stores every change on disk or keeps it in
memory, and the clock is real or virtual. What a device is given was made durable before, where there is a disk
(`handover.py`). The dispatcher knows nothing of callers, HTTP and journals.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from qloom.aio import TaskScope
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
from qloom.broker.records import SessionRecord, TaskRecord
from qloom.broker.registry import TaskRegistry
from qloom.device import Device
from qloom.world import Clock

LOG = logging.getLogger("qloom.broker")
LATE_US = 200_000  # a deadline that is noticed so much later was missed by the whole process
HEAR_S = 0.25  # for devices to say what they have done while the process did not run
VAGUE = ("it failed", "the device failed")  # what the core says if it knows no more


class Dispatcher:
    """Keeps queue, records and devices in step."""

    def __init__(self, core: QueueCore, registry: TaskRegistry, devices: Mapping[str, Device], clock: Clock) -> None:
        self.core, self.registry, self.clock = core, registry, clock
        self._devices = devices
        self._timer_us: int | None = None
        self._cancel_timer: Callable[[], None] = lambda: None
        self._scope = TaskScope(_log_failure)

    # After a restart

    def restore(
        self, tasks: Sequence[TaskRecord], sessions: Sequence[SessionRecord], counted_from_us: Callable[[int], int]
    ) -> None:
        """Take up what a store holds: what waits goes on waiting, what is on a device is found again there."""
        here = [session for session in sessions if session.device in self._devices]
        registry = self.registry
        registry.sessions = {session.id: session for session in here}
        for session in sessions:
            session.used_us = self.clock.now_us()
            session.limit_hold(self.core.ledger.project(session.project))
            if session.device not in self._devices:
                registry.close_session(session, f"QPU {session.device} is no longer there")
        registry.tasks = {task.id: task for task in tasks if task.device in self._devices}
        known = [task.restored(counted_from_us) for task in registry.tasks.values()]
        self.core.restore([session.restored() for session in here], known, self.clock.now_us())
        for task in tasks:
            if task.id not in registry.tasks:
                registry.end_task(task, "failed", f"QPU {task.device} is no longer there")
            elif task.token is not None:
                self._scope.start(self._run(task))
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
        self.carry_out(self.core.handle(event, self.clock.now_us()))

    def carry_out(self, actions: list[Action]) -> None:
        """Carry out what the queue has decided, in order."""
        registry = self.registry
        for action in actions:
            match action:
                case StartTask(name):
                    task = registry.tasks[name]
                    registry.start_task(task)
                    self._scope.start(self._run(task))
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
                    registry.count_execution(registry.tasks[name], ran_us, since_us)
                case EndSession(name, why):
                    LOG.info("session %s is closed: %s", name, why)
                    registry.close_session(registry.sessions[name], why)
        if (next_us := self.core.next_deadline_us()) is not None:
            self._wake_by(next_us)

    def cancel(self, task: TaskRecord, why: str = "") -> None:
        """Take a task out of the queue, or back from its device; `why` is shown to its owner."""
        self.registry.want_back(task)
        self.handle(TaskCancelled(task.id, why))

    def close_session(self, session: SessionRecord, why: str = "") -> None:
        """End a session; `why` is shown to its users."""
        if why:
            LOG.info("session %s is closed: %s", session.id, why)
        self.registry.close_session(session, why)
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
        try:
            self._finish(task, outcome)
        except Exception:
            LOG.exception("the broker failed to end task %s", task.id)

    def _finish(self, task: TaskRecord, outcome: DeviceOutcome) -> None:
        now_us = self.clock.now_us()
        billed_s = self._used_s(task, outcome, now_us)
        if outcome.ok and task.executing_us is None:  # done before anybody could say so; all of it in one commit
            self.advance(task, "executing")
        self.registry.end_attempt(task, outcome.word, billed_s, now_us)
        attempted = not (outcome.unknown and task.reattached)
        if not attempted:
            task.attempts -= 1
        task.calibration = outcome.calibration
        task.result, task.error, task.billed_s = outcome.result, outcome.error, (task.billed_s or 0.0) + billed_s
        actions = self.core.handle(TaskFinished(task.id, outcome.ok, outcome.fault, billed_s, attempted), now_us)
        if self.core.knows(task.id):
            self.registry.requeue_task(task, self.core.counted(task.id))
        self.carry_out(actions)

    def _used_s(self, task: TaskRecord, outcome: DeviceOutcome, now_us: int) -> float:
        """What an attempt is charged: what the vendor bills, else what was seen, else what the model says."""
        if outcome.billed_s is not None:
            return outcome.billed_s
        if task.executing_us is not None:
            return self.core.executed_s(task.id, now_us)
        return task.expected_s if outcome.ok else 0.0

    # What `run_on_device` writes down: see `HandoverLog`

    def hand_over(self, task: TaskRecord, device_id: str, state: str) -> None:
        """See `HandoverLog.hand_over`."""
        self.registry.hand_over(task, device_id, state)
        token = task.token

        def count(error: StoreFull | None) -> None:
            if not task.over and task.token == token and task.state == "preparing":
                self.advance(task, state, stored=True)

        self.registry.then(task, count)

    def advance(self, task: TaskRecord, state: str, *, stored: bool = False) -> None:
        """See `HandoverLog.advance`; `stored` says that the store knows."""
        now_us = self.clock.now_us()
        self.core.handle(TaskAdvanced(task.id, state), now_us)
        if (state := self.core.state(task.id)) == task.state:
            return
        self.registry.set_state(task, state, now_us, stored=stored)
        if state == "executing" and (next_us := self.core.next_deadline_us()) is not None:
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
            self._cancel_timer = self.clock.deadline(max(0, at_us - self.clock.now_us()) / 1e6, self._time_passed)

    def _time_passed(self) -> None:
        """Act on what is due. A process that could not run for a while first hears what its devices have done.

        What they have done meanwhile is not known here yet, and no task is to be ended for time that we have lost.
        """
        if self._timer_us is not None and self.clock.now_us() - self._timer_us > LATE_US:
            self._cancel_timer = self.clock.deadline(HEAR_S, self._handle_due)
        else:
            self._handle_due()

    def _handle_due(self) -> None:
        self._timer_us = None
        self.handle(TimePassed())
        soon_us = self.clock.now_us() + 1000
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
