"""Tasks and sessions that are not over: their records, who waits for them, and the news of their changes.

Each change of a record is staged in the store, and whoever waits or listens learns of it once it is durable. What is
to change is decided elsewhere: by the queue, and carried out by the dispatcher.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from qloom.broker.clock import BrokerTime
from qloom.broker.feed import EventFeed, News
from qloom.broker.problems import StoreFull
from qloom.broker.queue.ledger import Ledger
from qloom.broker.queue.task import Counted, Place
from qloom.broker.store.records import SessionRecord, TaskRecord
from qloom.broker.store.session_store import SessionStore
from qloom.broker.store.task_store import TO_BE_QUEUED, TaskStore

LOG = logging.getLogger("qloom.broker")
Waiters = dict[str, list[asyncio.Future[None]]]


class TaskRegistry:
    """The records of all tasks and sessions that are not over, in step with the store."""

    def __init__(
        self,
        task_store: TaskStore,
        session_store: SessionStore,
        feed: EventFeed,
        time: BrokerTime,
        ledger: Ledger,
    ) -> None:
        self.tasks: dict[str, TaskRecord] = {}
        self.sessions: dict[str, SessionRecord] = {}
        self._store, self._session_store = task_store, session_store
        self._feed, self._time, self._ledger = feed, time, ledger
        self._end_waiters: Waiters = {}
        self._begin_waiters: Waiters = {}  # for the execution of a task, or its end

    # Tasks

    def add_task(self, task: TaskRecord, digest: str, payload: str) -> None:
        """A task that the queue has admitted."""
        self.tasks[task.id] = task
        self._store.add_task(task, digest, payload)
        self.publish(task)

    def start_task(self, task: TaskRecord) -> None:
        """A task is about to be handed to its device, under a new token."""
        now_us = self._time.now_us()
        task.state, task.attempts = "preparing", task.attempts + 1
        task.started_us = task.started_us or now_us
        task.token = f"{task.id}-{task.attempts}"
        self._store.start_task(task, now_us)
        if (session := self.sessions.get(task.session or "")) is not None:
            session.turn_us = session.used_us = now_us
            self._session_store.take_turn(session, task.id)
        self.publish(task)

    def hand_over(self, task: TaskRecord, device_id: str, state: str) -> None:
        """The device has taken a task, which is now in `state` there; the record follows once this is durable."""
        task.device_id = device_id
        self._store.hand_over(task)
        self._store.set_state(task.id, state, self._time.now_us() if state == "executing" else None)

    def set_state(self, task: TaskRecord, state: str, now_us: int, *, stored: bool) -> None:
        """The device has moved a task on; `stored` says that the store knows."""
        task.state = state
        if state == "executing":
            task.executing_us = now_us
            self._wake(self._begin_waiters, task.id)
        if not stored:
            self._store.set_state(task.id, state, task.executing_us)
        self.publish(task)

    def set_counted(self, task: TaskRecord, counted: Counted) -> None:
        """What of a task's waiting and attempts counts has changed."""
        task.held = counted.held_us is not None
        self._store.set_counted(task.id, counted)

    def move_task(self, task: TaskRecord, place: Place, places: tuple[Place, ...]) -> None:
        """A task waits for another device from now on."""
        LOG.info("task %s goes from QPU %s to %s", task.id, task.device, place.device)
        task.move(place, places)
        self._store.move_task(task)
        self.publish(task)

    def want_back(self, task: TaskRecord, *, again: bool = False) -> None:
        """Remember over a restart that a task is to be taken back from its device; `again`: to be queued again."""
        task.wanted_again = again or task.wanted_again
        self._store.set_unwanted(task.id, TO_BE_QUEUED if again else 1)

    def requeue_task(self, task: TaskRecord, counted: Counted) -> None:
        """A task has to wait again; what its attempt cost is part of the same commit."""
        LOG.info("task %s goes back to the queue: %s", task.id, task.error)
        task.state, task.token, task.device_id, task.executing_us = "queued", None, None, None
        task.reattached = task.stop_wanted = task.wanted_again = False
        self._store.requeue_task(task)
        self.set_counted(task, counted)
        self._store_usage(task.project)
        self.publish(task)

    def end_task(self, task: TaskRecord, state: str, reason: str) -> None:
        """A task is over, and what it cost is part of the same commit."""
        if task.refused:
            self._remove(task)
            return
        now_us = self._time.now_us()
        task.over = True  # its state is seen as it was until this is durable
        self._store.end_task(task, state, reason, now_us)
        self._store_usage(task.project)
        self._time.note(now_us)
        if (session := self.sessions.get(task.session or "")) is not None:
            session.used_us = now_us
        self._store.then(lambda error: self._remove(task), task.id)
        self.publish(task, state=state, ended_us=now_us, reason=reason, billed_s=task.billed_s)

    def _store_usage(self, project: str) -> None:
        self._store.set_usage(project, self._ledger.used_s.get(project, 0.0), self._ledger.usage.as_dict())

    def _remove(self, task: TaskRecord) -> None:
        """Those who wait for a task may know that it is over: that is durable, or it was never accepted."""
        self.tasks.pop(task.id, None)
        self._wake(self._begin_waiters, task.id)
        self._wake(self._end_waiters, task.id)

    def publish(self, task: TaskRecord, **more: Any) -> None:
        """Send the state of a task to all who listen, once it is durable."""
        event = {"event": "task", **task.view(), **more}
        session = self.sessions.get(task.session or "")
        others = event if session is not None and session.shared else {**event, "session": None}

        def send(error: StoreFull | None) -> None:
            if error is None:
                self._feed.publish(News(event, task.project, task.user, others))

        self._store.then(send, task.id)

    # Sessions

    def add_session(self, session: SessionRecord) -> None:
        """A session that the queue has admitted."""
        self.sessions[session.id] = session
        self._session_store.add(session)

    def open_session(self, session: SessionRecord) -> None:
        """A session holds its device, or its share."""
        session.state, session.opened_us = "open", self._time.now_us()
        session.used_us = session.opened_us
        self._session_store.open(session)
        self._publish_session(session)

    def close_session(self, session: SessionRecord, why: str = "") -> None:
        """A session is over, and its users are shown `why`; what it has on a device is to be taken back."""
        for task in self.tasks.values():
            if task.session == session.id:
                self._store.set_unwanted(task.id)
        session.state = "closed"
        self.sessions.pop(session.id, None)
        self._session_store.close(session.id, why, self._time.now_us())
        self._publish_session(session)

    def _publish_session(self, session: SessionRecord) -> None:
        def send(error: StoreFull | None) -> None:
            for waiter in session.waiters:
                if not waiter.done():
                    waiter.set_result(None)
            session.waiters.clear()
            if error is None:
                others = event if session.shared else None
                self._feed.publish(News(event, session.project, session.user, others))

        event = {"event": "session", "session": session.id, "device": session.device, "state": session.state}
        self._session_store.then(send, session.id)

    # Waiting

    async def wait_ended(self, task: str, within_s: float | None) -> None:
        """Wait until a task that is not over is, for at most `within_s` seconds."""
        await self._wait(self._end_waiters, task, within_s)

    async def wait_begun(self, task: str, within_s: float | None) -> None:
        """Wait until a task that is not over executes or is over, for at most `within_s` seconds."""
        await self._wait(self._begin_waiters, task, within_s)

    async def wait_opened(self, session: SessionRecord, within_s: float | None) -> None:
        """Wait until a waiting session is open or closed, for at most `within_s` seconds."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        session.waiters.append(changed)
        try:
            await self._within(changed, within_s)
        finally:  # whoever polls a session that waits for long must leave nothing behind
            if changed in session.waiters:
                session.waiters.remove(changed)

    async def _wait(self, waiters: Waiters, task: str, within_s: float | None) -> None:
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.setdefault(task, []).append(changed)
        try:
            await self._within(changed, within_s)
        finally:
            waiting = waiters.get(task, [])
            if changed in waiting:
                waiting.remove(changed)
            if not waiting:
                waiters.pop(task, None)

    async def _within(self, changed: asyncio.Future[None], seconds: float | None) -> None:
        if seconds is None:
            await changed
            return

        def give_up() -> None:
            if not changed.done():
                changed.cancel("time is up")

        cancel = self._time.deadline(seconds, give_up)
        try:
            await asyncio.wait([changed])
        finally:
            cancel()

    @staticmethod
    def _wake(waiters: Waiters, task: str) -> None:
        for waiter in waiters.pop(task, []):
            if not waiter.done():
                waiter.set_result(None)
