"""What the store is told of tasks and sessions, and who hears of it once that is durable."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from qloom.broker.api.feed import Feed, News
from qloom.broker.presence import Presence
from qloom.broker.problems import StoreFull
from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.events import Submitted
from qloom.broker.queue.ledger import Ledger, Project
from qloom.broker.queue.policies import Usage
from qloom.broker.queue.promise import DeviceSpec
from qloom.broker.store.loading import places_text
from qloom.broker.store.records import Live, LiveSession
from qloom.broker.store.store import Store
from qloom.device import Device
from qloom.ports import Clock

LOG = logging.getLogger("qloom.broker")


class Notes:
    """Tasks and sessions that are not over, the core that orders them, and the store that remembers them."""

    def __init__(
        self,
        devices: Sequence[Device],
        specs: Sequence[DeviceSpec],
        store: Store,
        clock: Clock,
        *,
        projects: Sequence[Project] = (),
        max_jobs: int | None = None,
        half_life_s: float = 7 * 86400.0,
    ) -> None:
        self.store = store
        self.clock = clock
        self.feed = Feed(f"{clock.now_us():x}")
        self.devices = {device.description.name: device for device in devices}
        kept = {str(row["name"]): row for row in store.rows("SELECT * FROM devices")}
        self.drained = {name: bool(kept[name]["drained"]) if name in kept else False for name in self.devices}
        self.specs = {
            spec.name: replace(spec, shares=kept[spec.name]["shares"] or spec.shares) if spec.name in kept else spec
            for spec in specs
        }
        self.presence = Presence(store, clock.now_us())
        usage = json.loads(store.get("usage", '{"seconds": {}, "as_of_us": 0}'))
        ledger = Ledger(
            {project.name: project for project in projects},
            max_jobs,
            used_s={str(row["name"]): float(row["used_s"]) for row in store.rows("SELECT * FROM projects")},
            usage=Usage(
                half_life_s=half_life_s,
                seconds=usage["seconds"],
                as_of_us=self.presence.after_jumps_us(usage["as_of_us"]),
            ),
        )
        self.core = QueueCore(list(self.specs.values()), ledger)
        self.live: dict[str, Live] = {}
        self.sessions: dict[str, LiveSession] = {}
        self.waiters: dict[str, list[asyncio.Future[None]]] = {}  # for the end of a task
        self.begun_waiters: dict[str, list[asyncio.Future[None]]] = {}  # for its execution, or its end
        self._floor_us = int(store.get("clock_us", "0"))

    def now_us(self) -> int:
        """Time, which never goes back."""
        self._floor_us = max(self._floor_us, self.clock.now_us())
        return self._floor_us

    def note_started(self, task: Live, now_us: int) -> None:
        """A task is about to be given to its device: the token is durable before the device sees it."""
        stage = self.store.stage
        stage(
            "UPDATE tasks SET state = 'preparing', attempts = ?, started_us = ? WHERE id = ?",
            *(task.attempts, task.started_us, task.id),
            group=task.id,
        )
        stage(  # a token comes twice only if the device said that it does not know it
            "INSERT INTO handovers (token, task, device, began_us) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (token) DO UPDATE SET began_us = excluded.began_us, ended_us = NULL, outcome = NULL",
            *(task.token, task.id, task.submitted.device, now_us),
            group=task.id,
        )
        if (session := self.sessions.get(task.submitted.session or "")) is not None:
            session.turn_us = session.used_us = now_us
            stage("UPDATE sessions SET turn_us = ? WHERE id = ?", now_us, session.id, group=task.id)

    def stage_state(self, task: str, state: str, executing_us: int | None) -> None:
        """A task has come to another state; its execution counts from `executing_us` on."""
        sql = "UPDATE tasks SET state = ?, executing_us = ?, counted_us = ?, ran_us = 0 WHERE id = ?"
        self.store.stage(sql, state, executing_us, executing_us, task, group=task)

    def note_counted(self, task: Live) -> None:
        """What of a task's waiting and attempts counts has changed."""
        counted = self.core.counted(task.id)
        task.held = counted.held_us is not None
        self.store.stage(
            "UPDATE tasks SET held_us = ?, uncounted_us = ?, spent = ? WHERE id = ?",
            *(counted.held_us, counted.uncounted_us, counted.spent, task.id),
            group=task.id,
        )

    def note_counting(self, task: Live, ran_us: int, since_us: int | None) -> None:
        """Execution of a task counts from now on, or not while its device is away."""
        sql = "UPDATE tasks SET ran_us = ?, counted_us = ? WHERE id = ?"
        self.store.stage(sql, ran_us, since_us, task.id, group=task.id)

    def note_moved(self, task: Live, submitted: Submitted) -> None:
        """A task waits for another device from now on."""
        LOG.info("task %s goes from QPU %s to %s", task.id, task.submitted.device, submitted.device)
        task.submitted = submitted
        self.store.stage(
            "UPDATE tasks SET device = ?, expected_s = ?, time_limit_s = ?, set_up = ?, places = ? WHERE id = ?",
            *(submitted.device, submitted.expected_s, submitted.time_limit_s, submitted.set_up),
            *(places_text(submitted.places), task.id),
            group=task.id,
        )
        self.publish(task)

    def note_requeued(self, task: Live) -> None:
        """A task has to wait again; what its attempt cost is part of the same commit."""
        LOG.info("task %s goes back to the queue: %s", task.id, task.error)
        task.state, task.token, task.device_id, task.executing_us = "queued", None, None, None
        task.reattached = task.stop_wanted = task.wanted_again = False
        task.let_go_us = None
        self.store.stage(
            "UPDATE tasks SET state = 'queued', attempts = ?, executing_us = NULL, billed_s = ?, unwanted = 0 "
            "WHERE id = ?",
            *(task.attempts, task.billed_s, task.id),
            group=task.id,
        )
        self.note_counted(task)
        self._stage_usage(task.project)
        self.publish(task)

    def note_end(self, task: Live, state: str, reason: str) -> None:
        """A task is over, and what it cost is part of the same commit."""
        if task.refused:
            self._over(task)
            return
        now_us = self.now_us()
        stage = self.store.stage
        task.over = True  # its state is seen as it was until this is durable
        stage(
            "UPDATE tasks SET state = ?, reason = ?, ended_us = ?, billed_s = ?, attempts = ? WHERE id = ?",
            *(state, reason, now_us, task.billed_s, task.attempts, task.id),
            group=task.id,
        )
        if state == "done":
            stage("INSERT OR REPLACE INTO results VALUES (?, ?)", task.id, task.result, group=task.id)
        stage("DELETE FROM payloads WHERE task = ?", task.id, group=task.id)
        self._stage_usage(task.project)
        self.presence.note(now_us)
        if (session := self.sessions.get(task.submitted.session or "")) is not None:
            session.used_us = now_us
        self.store.then(lambda error: self._over(task), task.id)
        self.publish(task, state=state, ended_us=now_us, reason=reason, billed_s=task.billed_s)

    def _stage_usage(self, project: str) -> None:
        ledger = self.core.ledger
        self.store.stage(
            "INSERT INTO projects VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET used_s = excluded.used_s",
            *(project, ledger.used_s.get(project, 0.0)),
        )
        self.store.put("usage", json.dumps(ledger.usage.as_dict()))

    def _over(self, task: Live) -> None:
        """Those who wait for a task may know that it is over: that is durable, or it was never accepted."""
        self.live.pop(task.id, None)
        self.begun(task)
        for waiter in self.waiters.pop(task.id, []):
            if not waiter.done():
                waiter.set_result(None)

    def begun(self, task: Live) -> None:
        """Those who wait for a task may know that it executes, or is over."""
        for waiter in self.begun_waiters.pop(task.id, []):
            if not waiter.done():
                waiter.set_result(None)

    def note_session_closed(self, session: LiveSession, why: str = "") -> None:
        """A session is over; `why` is what its users are told."""
        session.state = "closed"
        self.sessions.pop(session.id, None)
        self.store.stage(
            "UPDATE sessions SET state = 'closed', closed_us = ?, reason = ? WHERE id = ?",
            *(self.now_us(), why, session.id),
            group=session.id,
        )
        self._wake(session)

    def note_opened(self, session: LiveSession) -> None:
        """A session holds its device, or its share."""
        session.state, session.opened_us = "open", self.now_us()
        session.used_us = session.opened_us
        self.store.stage(
            "UPDATE sessions SET state = 'open', opened_us = ? WHERE id = ?",
            *(session.opened_us, session.id),
            group=session.id,
        )
        self._wake(session)

    def _wake(self, session: LiveSession) -> None:
        def told(error: StoreFull | None) -> None:
            for waiter in session.waiters:
                if not waiter.done():
                    waiter.set_result(None)
            session.waiters.clear()
            if error is None:
                others = event if session.shared else None
                self.feed.tell(News(event, session.project, session.user, others))

        event = {"event": "session", "session": session.id, "device": session.device, "state": session.state}
        self.store.then(told, session.id)

    def publish(self, task: Live, **more: Any) -> None:
        """Tell of a task's state once it is durable."""
        event = {"event": "task", **task.view(), **more}
        session = self.sessions.get(task.submitted.session or "")
        others = event if session is not None and session.shared else {**event, "session": None}

        def tell(error: StoreFull | None) -> None:
            if error is None:
                self.feed.tell(News(event, task.project, task.user, others))

        self.store.then(tell, task.id)
