"""The queue core at work: carries out its actions, keeps the store in step, and picks everything up after a crash."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from qloom.broker.carry import Outcome, carry, stop
from qloom.broker.notes import Notes
from qloom.broker.problems import StoreFull
from qloom.broker.queue.events import (
    Action,
    Advanced,
    Cancelled,
    Counting,
    DeviceUp,
    Ended,
    Event,
    Finished,
    LetGo,
    Moved,
    Requeued,
    SessionEnded,
    SessionOpened,
    Start,
    Stop,
    TimePassed,
)
from qloom.broker.store.loading import load_sessions, load_tasks
from qloom.broker.store.records import Live, LiveSession, read_payload
from qloom.model import Payload, QpuHold

LOG = logging.getLogger("qloom.broker")
VAGUE = ("it failed", "the device failed")  # what the core says if it knows no more


class Board(Notes):
    """Tasks and sessions that are not over, in step with the core, the store and the devices."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer_us: int | None = None
        self._cancel_timer: Callable[[], None] = lambda: None
        self._chores: dict[asyncio.Task[Any], None] = {}

    # After a restart

    def load(self) -> None:
        """Take up what the store holds: what waits goes on waiting, what is on a device is found again there."""
        tasks, sessions = load_tasks(self.store), load_sessions(self.store)
        here = [session for session in sessions if session.device in self.devices]
        self.sessions = {session.id: session for session in here}
        for session in sessions:
            session.used_us = self.now_us()
            self.limit_hold(session)
            if session.device not in self.devices:
                self.note_session_closed(session, f"QPU {session.device} is no longer there")
        self.live = {task.id: task for task in tasks if task.submitted.device in self.devices}
        known = [task.known(self.presence.after_jumps_us) for task in self.live.values()]
        self.core.restore([session.known() for session in here], known, self.now_us())
        for task in tasks:
            if task.id not in self.live:
                self.note_end(task, "failed", f"QPU {task.submitted.device} is no longer there")
            elif task.token is not None:
                self._spawn_runner(task)
        for task in list(self.live.values()):
            if task.stop_wanted:
                task.stop_wanted = False
                self.handle(Requeued(task.id) if task.wanted_again and task.state != "queued" else Cancelled(task.id))
        if tasks or sessions:
            LOG.info("taken up again: %d tasks, %d sessions", len(self.live), len(self.sessions))

    # Events and actions

    def handle(self, event: Event) -> None:
        """Tell the core, and do what it says."""
        self.apply(self.core.handle(event, self.now_us()))

    def limit_hold(self, session: LiveSession) -> None:
        """How long a session may hold a whole device, as its project may."""
        if session.hold is QpuHold.WHOLE:
            project = self.core.ledger.project(session.project)
            session.idle_limit_s, session.hold_limit_s = project.whole_idle_s, project.whole_hold_s

    def apply(self, actions: list[Action]) -> None:
        """Carry out what the core decided, in order."""
        for action in actions:
            match action:
                case Start(name):
                    self._start(self.live[name])
                case Stop(name):
                    self._stop(self.live[name])
                case SessionOpened(name):
                    self.note_opened(self.sessions[name])
                case Ended(name, state, reason):
                    task = self.live[name]
                    self.note_end(task, state, task.error if reason in VAGUE and task.error else reason)
                case Moved(submitted):
                    self.note_moved(self.live[submitted.task], submitted)
                case Counting(name, ran_us, since_us):
                    self.note_counting(self.live[name], ran_us, since_us)
                case SessionEnded(name, why):
                    self.note_session_ended(self.sessions[name], why)
        if (next_us := self.core.next_deadline_us()) is not None:
            self.wake_by(next_us)

    def note_session_ended(self, session: LiveSession, why: str) -> None:
        """A session is closed by the broker; what it still has on a device is to be taken back."""
        LOG.info("session %s is closed: %s", session.id, why)
        for task in self.live.values():
            if task.submitted.session == session.id:
                self.note_unwanted(task)
        self.note_session_closed(session, why)

    def note_unwanted(self, task: Live, mark: int = 1) -> None:
        """Remember over a restart that a task is to be taken back from its device."""
        self.store.stage("UPDATE tasks SET unwanted = ? WHERE id = ?", mark, task.id, group=task.id)

    def _start(self, task: Live) -> None:
        now_us = self.now_us()
        task.state, task.attempts = "preparing", task.attempts + 1
        task.started_us = task.started_us or now_us
        task.token = f"{task.id}-{task.attempts}"
        self.note_started(task, now_us)
        self.publish(task)
        self._spawn_runner(task)

    def _stop(self, task: Live) -> None:
        task.stop_wanted = True
        if task.device_id is not None:  # otherwise whoever hands it over will see that it is not wanted
            self.spawn(stop(task, self.devices[task.submitted.device], self))

    def _spawn_runner(self, task: Live) -> None:
        task.runner = self.spawn(self._drive(task))

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Something that goes on by itself, until the broker closes."""
        chore: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._chores[chore] = None
        chore.add_done_callback(self._chore_over)
        return chore

    def _chore_over(self, chore: asyncio.Task[Any]) -> None:
        self._chores.pop(chore, None)
        if not chore.cancelled() and (error := chore.exception()) is not None:
            LOG.error("the broker failed: %s", error, exc_info=error)

    async def _drive(self, task: Live) -> None:
        try:
            outcome = await carry(task, self.devices[task.submitted.device], self)
        except StoreFull:
            task.refused, outcome = True, Outcome(False, billed_s=0.0)
        except Exception as error:
            LOG.exception("task %s", task.id)
            outcome = Outcome(False, error=f"the broker failed: {type(error).__name__}")
        self._finished(task, outcome)

    def _finished(self, task: Live, outcome: Outcome) -> None:
        now_us = self.now_us()
        billed_s = self._used_s(task, outcome, now_us)
        if outcome.ok and task.executing_us is None:  # done before anybody could say so; all of it in one commit
            self.advance(task, "executing")
        ended = (
            "uncertain" if outcome.uncertain else "done" if outcome.ok else "unknown" if outcome.unknown else "failed"
        )
        self.store.stage(
            "UPDATE handovers SET ended_us = ?, outcome = ?, billed_s = ? WHERE token = ?",
            *(now_us, ended, billed_s, task.token),
            group=task.id,
        )
        attempted = not (outcome.unknown and task.reattached)
        if not attempted:
            task.attempts -= 1
        task.result, task.error, task.billed_s = outcome.result, outcome.error, (task.billed_s or 0.0) + billed_s
        actions = self.core.handle(Finished(task.id, outcome.ok, outcome.fault, billed_s, attempted), now_us)
        if not any(isinstance(action, Ended) and action.task == task.id for action in actions):
            self.note_requeued(task)
        self.apply(actions)

    def _used_s(self, task: Live, outcome: Outcome, now_us: int) -> float:
        """What an attempt is charged: what the vendor bills, else what was seen, else what the model says."""
        if outcome.billed_s is not None:
            return outcome.billed_s
        if task.executing_us is not None:
            return self.core.executed_s(task.id, now_us)
        return task.submitted.expected_s if outcome.ok else 0.0

    # What `carry` notes

    def durable(self, group: str) -> asyncio.Future[None]:
        """Wait until all that was noted is durable."""
        return self.store.durable(group)

    def payload(self, task: str) -> Payload:
        """The payload of a task."""
        row = self.store.row("SELECT envelope FROM payloads WHERE task = ?", task)
        assert row is not None  # noqa: S101
        return read_payload(row["envelope"])

    def handed_over(self, task: Live, device_id: str, state: str) -> None:
        """The device has taken the task; once this is durable, the task counts as `state`."""
        task.device_id = device_id
        self.store.stage("UPDATE handovers SET device_id = ? WHERE token = ?", device_id, task.token, group=task.id)
        self.stage_state(task.id, state, self.now_us() if state == "executing" else None)
        token = task.token

        def count(error: StoreFull | None) -> None:
            if not task.over and task.token == token and task.state == "preparing":
                self.advance(task, state, noted=True)

        self.store.then(count, task.id)

    def advance(self, task: Live, state: str, *, noted: bool = False) -> None:
        """The device has moved the task on; `noted` says that the store knows."""
        now_us = self.now_us()
        self.core.handle(Advanced(task.id, state), now_us)
        if (state := self.core.state(task.id)) == task.state:
            return
        task.state = state
        if state == "executing":
            task.executing_us = now_us
            self.begun(task)
            if (next_us := self.core.next_deadline_us()) is not None:
                self.wake_by(next_us)
        if not noted:
            self.stage_state(task.id, state, task.executing_us)
        self.publish(task)

    def let_go(self, task: Live) -> None:
        """The device is done with the task: another can start there while the answer is fetched."""
        task.let_go_us = self.now_us()
        self.handle(LetGo(task.id))

    # Time

    def wake_by(self, at_us: int) -> None:
        """Something may be due then."""
        if self._timer_us is None or at_us < self._timer_us:
            self._cancel_timer()
            self._timer_us = at_us
            self._cancel_timer = self.clock.deadline(max(0, at_us - self.now_us()) / 1e6, self._time_passed)

    def _time_passed(self) -> None:
        self._timer_us = None
        self.handle(TimePassed())
        soon_us = self.now_us() + 1000
        if self._timer_us is not None and self._timer_us < soon_us:  # a clock that is early must not keep us busy
            self._cancel_timer()
            self._timer_us = None
            self.wake_by(soon_us)

    def set_up(self, device: str, up: bool, away: bool = False) -> None:
        """A device came back, was drained or went away."""
        self.handle(DeviceUp(device, up, away))

    async def close(self) -> None:
        """Let go of everything; tasks on devices go on, and are found again."""
        self.presence.note(self.now_us())
        self._cancel_timer()
        self.feed.close()
        while chores := list(self._chores):
            for chore in chores:
                chore.cancel()
            await asyncio.wait(chores)
        for device in self.devices.values():
            await device.close()
        self.store.close()
