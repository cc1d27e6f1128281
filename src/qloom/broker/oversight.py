"""What administrators see and do: all tasks and sessions with their owners, evict, hold, release, requeue.

Others see their own in the same lists.
"""

from __future__ import annotations

import logging

from qloom.broker.desk import View
from qloom.broker.problems import NotFound
from qloom.broker.queue.events import Cancelled, Event, Held, Released, Requeued
from qloom.broker.shell import Broker
from qloom.broker.store.loading import TO_BE_QUEUED
from qloom.broker.store.records import Caller, Live

LOG = logging.getLogger("qloom.broker")


class Oversight:
    """A broker's tasks and sessions, for whoever runs the site."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def tasks(self, who: Caller, device: str | None = None) -> list[View]:
        """Tasks that are not over: those of the caller's projects, and all of them for an administrator."""
        return [
            self._broker.as_seen(who, task.view())
            for task in self._broker.live.values()
            if self._broker.may_see(who, task.project) and device in (None, task.submitted.device)
        ]

    def sessions(self, who: Caller, device: str | None = None) -> list[View]:
        """Sessions that wait or are open: the caller's own, shared ones, and all of them for an administrator."""
        counts: dict[str | None, int] = {}
        for task in self._broker.live.values():
            counts[task.submitted.session] = counts.get(task.submitted.session, 0) + 1
        return [
            {**session.view(), "tasks": counts.get(session.id, 0)}
            for session in self._broker.sessions.values()
            if (who.admin or session.usable_by(who)) and device in (None, session.device)
        ]

    async def evict(self, who: Caller, id: str, reason: str = "") -> View:
        """Close a session, or cancel a task, of anybody; `reason` is what its owner is told."""
        who.require_admin()
        why = "an administrator ended it" + (f": {reason}" if reason else "")
        if (session := self._broker.sessions.get(id)) is not None:
            LOG.warning("%s evicts session %s of %s", who.user, id, session.user)
            self._broker.close_now(session, why)
        else:
            task = self._task(id)
            LOG.warning("%s evicts task %s of %s", who.user, id, task.user)
            self._broker.note_unwanted(task)
            self._broker.handle(Cancelled(id, why))
        await self._broker.store.durable()
        return self._broker.session(who, id) if session is not None else self._broker.status(who, id)

    async def hold(self, who: Caller, task: str) -> View:
        """Keep a queued task from being started."""
        return await self._change(who, Held(task), task)

    async def release(self, who: Caller, task: str) -> View:
        """Let a task run that was held."""
        return await self._change(who, Released(task), task)

    async def requeue(self, who: Caller, task: str) -> View:
        """Take a task back from its device and queue it again."""
        return await self._change(who, Requeued(task), task)

    async def _change(self, who: Caller, event: Held | Released | Requeued, name: str) -> View:
        who.require_admin()
        task = self._task(name)
        LOG.warning("%s: task %s of %s is %s", who.user, name, task.user, type(event).__name__.lower())
        self._do(task, event)
        await self._broker.store.durable()
        return self._broker.status(who, name)

    def _do(self, task: Live, event: Event) -> None:
        self._broker.handle(event)
        if isinstance(event, Requeued):
            task.wanted_again = True
            self._broker.note_unwanted(task, TO_BE_QUEUED)
        elif self._broker.core.knows(task.id):
            self._broker.note_counted(task)
            self._broker.publish(task)

    def _task(self, name: str) -> Live:
        if (task := self._broker.live.get(name)) is None:
            raise NotFound(f"there is no task or session {name} that is not over", hint="qloom broker tasks")
        return task
