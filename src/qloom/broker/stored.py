"""The records of the service: each change is staged in the store, and published once it is durable.

What costs a project something is part of the same commit as the change that it was for.
The same idempotency key of a user in a project never makes a second task or session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from qloom.broker.clock import BrokerTime
from qloom.broker.feed import EventFeed, News
from qloom.broker.problems import StoreFull
from qloom.broker.queue.policies import Ledger
from qloom.broker.queue.task import Counted, Place
from qloom.broker.records import SessionRecord, TaskRecord
from qloom.broker.registry import TaskRegistry, Then
from qloom.broker.store.session_store import SessionStore
from qloom.broker.store.task_store import TO_BE_QUEUED, TaskStore
from qloom.model import Payload, json_text


class StoredRegistry(TaskRegistry):
    """Keeps records, store and feed in step."""

    def __init__(
        self,
        task_store: TaskStore,
        session_store: SessionStore,
        feed: EventFeed,
        time: BrokerTime,
        ledger: Ledger,
    ) -> None:
        super().__init__(time)
        self._store, self._session_store = task_store, session_store
        self._feed, self._time, self._ledger = feed, time, ledger

    # Tasks

    def add_task(self, task: TaskRecord, digest: str, payload: str) -> None:
        """A task that the queue has admitted."""
        self.tasks[task.id] = task
        self._store.add_task(task, digest, payload)
        self.publish(task)

    def start_task(self, task: TaskRecord) -> None:
        """See `TaskRegistry.start_task`: the token is staged, and durable before the device sees it."""
        super().start_task(task)
        now_us = self._time.now_us()
        self._store.start_task(task, now_us)
        if (session := self.sessions.get(task.session or "")) is not None:
            session.turn_us = session.used_us = now_us
            self._session_store.take_turn(session, task.id)
        self.publish(task)

    def hand_over(self, task: TaskRecord, device_id: str, state: str) -> None:
        """See `TaskRegistry.hand_over`."""
        super().hand_over(task, device_id, state)
        self._store.hand_over(task)
        self._store.set_state(task.id, state, self._time.now_us() if state == "executing" else None)

    def set_state(self, task: TaskRecord, state: str, now_us: int, *, stored: bool) -> None:
        """See `TaskRegistry.set_state`."""
        super().set_state(task, state, now_us, stored=stored)
        if not stored:
            self._store.set_state(task.id, state, task.executing_us)
        self.publish(task)

    def set_counted(self, task: TaskRecord, counted: Counted) -> None:
        """What of a task's waiting and attempts counts has changed."""
        task.held = counted.held_us is not None
        self._store.set_counted(task.id, counted)

    def count_execution(self, task: TaskRecord, ran_us: int, since_us: int | None) -> None:
        """See `TaskRegistry.count_execution`."""
        self._store.count_execution(task.id, ran_us, since_us)

    def move_task(self, task: TaskRecord, place: Place, places: tuple[Place, ...]) -> None:
        """See `TaskRegistry.move_task`."""
        super().move_task(task, place, places)
        self._store.move_task(task)
        self.publish(task)

    def want_back(self, task: TaskRecord, *, again: bool = False) -> None:
        """See `TaskRegistry.want_back`: also after a restart."""
        super().want_back(task, again=again)
        self._store.set_unwanted(task.id, TO_BE_QUEUED if again else 1)

    def end_attempt(self, task: TaskRecord, outcome: str, billed_s: float, now_us: int) -> None:
        """See `TaskRegistry.end_attempt`."""
        self._store.end_handover(task, outcome, billed_s, now_us)

    def requeue_task(self, task: TaskRecord, counted: Counted) -> None:
        """See `TaskRegistry.requeue_task`."""
        super().requeue_task(task, counted)
        self._store.requeue_task(task)
        self.set_counted(task, counted)
        self._store_usage(task.project)
        self.publish(task)

    def end_task(self, task: TaskRecord, state: str, reason: str) -> None:
        """A task is over. Its state is seen as it was until this is durable."""
        if task.refused:
            self._remove(task)
            return
        now_us = self._time.now_us()
        task.over = True
        self._store.end_task(task, state, reason, now_us)
        self._store_usage(task.project)
        self._time.note(now_us)
        if (session := self.sessions.get(task.session or "")) is not None:
            session.used_us = now_us
        self.then(task, lambda error: self._remove(task))
        ended = {"ended_us": now_us, "reason": reason, "billed_s": task.billed_s, "calibration": task.calibration}
        self.publish(task, state=state, **ended)

    def _store_usage(self, project: str) -> None:
        self._store.set_usage(project, self._ledger.used_s.get(project, 0.0), self._ledger.usage.as_dict())

    def publish(self, task: TaskRecord, **more: Any) -> None:
        """Send the state of a task to all who listen, once it is durable."""
        event = {"event": "task", **task.view(), **more}
        session = self.sessions.get(task.session or "")
        others = event if session is not None and session.shared else {**event, "session": None}

        def send(error: StoreFull | None) -> None:
            if error is None:
                self._feed.publish(News(event, task.project, task.user, others))

        self.then(task, send)

    def payload(self, task: TaskRecord) -> Payload:
        """See `TaskRegistry.payload`."""
        return self._store.payload(task.id)

    def encode(self, answer: Any) -> str:
        """See `TaskRegistry.encode`: as JSON."""
        return json_text(answer)

    def durable(self, task: TaskRecord) -> Awaitable[None]:
        """See `TaskRegistry.durable`."""
        return self._store.durable(task.id)

    def then(self, task: TaskRecord, call: Then) -> None:
        """See `TaskRegistry.then`."""
        self._store.then(call, task.id)

    # Sessions

    def add_session(self, session: SessionRecord) -> None:
        """See `TaskRegistry.add_session`."""
        super().add_session(session)
        self._session_store.add(session)

    def open_session(self, session: SessionRecord) -> None:
        """See `TaskRegistry.open_session`."""
        session.open(self._time.now_us())
        self._session_store.open(session)
        self._publish_session(session)

    def close_session(self, session: SessionRecord, why: str = "") -> None:
        """See `TaskRegistry.close_session`: also after a restart its tasks are taken back."""
        for task in self.tasks.values():
            if task.session == session.id:
                self._store.set_unwanted(task.id)
        session.state = "closed"
        self.sessions.pop(session.id, None)
        self._session_store.close(session.id, why, self._time.now_us())
        self._publish_session(session)

    def _publish_session(self, session: SessionRecord) -> None:
        def send(error: StoreFull | None) -> None:
            session.changed.wake()
            if error is None:
                others = event if session.shared else None
                self._feed.publish(News(event, session.project, session.user, others))

        event = {"event": "session", "session": session.id, "device": session.device, "state": session.state}
        self._session_store.then(send, session.id)


@dataclass(frozen=True)
class IdempotencyKey:
    """A key as it is kept: it belongs to a user and a project."""

    table: str  # tasks or sessions
    user: str
    project: str
    key: str


class KeyRing:
    """Which task or session was made with a key, also before that is durable."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store
        self._pending: dict[IdempotencyKey, str] = {}

    async def made_with(self, key: IdempotencyKey | None) -> str | None:
        """The id of what was made with a key, once that is settled: stored, or refused."""
        if key is None:
            return None
        id = self._pending.get(key) or self._store.made_with_key(key.table, key.user, key.project, key.key)
        if id is not None:
            await self._store.durable(id)
        return id

    async def accept(self, id: str, key: IdempotencyKey | None) -> None:
        """Wait until something new is durable; raises `StoreFull` if it cannot be."""
        if key is not None:
            self._pending[key] = id
        try:
            # The answer may no longer be wanted, but what was staged will be committed all the same.
            await asyncio.shield(self._store.durable(id))
        finally:
            if key is not None:
                self._pending.pop(key, None)


def not_stored() -> StoreFull:
    """For whoever asks again for what could not be stored."""
    return StoreFull("the broker cannot store this", hint="nothing was accepted; try again when there is room")
