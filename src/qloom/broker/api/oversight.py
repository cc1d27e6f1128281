"""What administrators see and do: all tasks and sessions with their owners, evict, hold, release, requeue.

Others see their own in the same lists.
"""

from __future__ import annotations

import logging

from qloom.broker.api.sessions import SessionApi
from qloom.broker.api.tasks import TaskApi
from qloom.broker.dispatcher import Dispatcher
from qloom.broker.problems import NotFound
from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.events import TaskHeld, TaskReleased, TaskRequeued
from qloom.broker.records import TaskRecord
from qloom.broker.requests import Caller
from qloom.broker.store.task_store import TaskStore, View
from qloom.broker.stored import StoredRegistry

LOG = logging.getLogger("qloom.broker")


class Oversight:
    """A broker's tasks and sessions, for whoever runs the site."""

    def __init__(
        self,
        core: QueueCore,
        dispatcher: Dispatcher,
        registry: StoredRegistry,
        store: TaskStore,
        tasks: TaskApi,
        sessions: SessionApi,
    ) -> None:
        self._core, self._dispatcher, self._registry, self._store = core, dispatcher, registry, store
        self._tasks, self._sessions = tasks, sessions

    def tasks(self, who: Caller, device: str | None = None) -> list[View]:
        """Tasks that are not over: those of the caller's projects, and all of them for an administrator."""
        return [
            self._tasks.as_seen(who, task.view())
            for task in self._registry.tasks.values()
            if who.may_see(task.project) and device in (None, task.device)
        ]

    def sessions(self, who: Caller, device: str | None = None) -> list[View]:
        """Sessions that wait or are open: the caller's own, shared ones, and all of them for an administrator."""
        counts: dict[str | None, int] = {}
        for task in self._registry.tasks.values():
            counts[task.session] = counts.get(task.session, 0) + 1
        return [
            {**session.view(), "tasks": counts.get(session.id, 0)}
            for session in self._registry.sessions.values()
            if (who.admin or session.usable_by(who)) and device in (None, session.device)
        ]

    async def evict(self, who: Caller, id: str, reason: str = "") -> View:
        """Close a session, or cancel a task, of anybody; `reason` is shown to its owner."""
        who.require_admin()
        why = "an administrator ended it" + (f": {reason}" if reason else "")
        if (session := self._registry.sessions.get(id)) is not None:
            LOG.warning("%s evicts session %s of %s", who.user, id, session.user)
            self._dispatcher.close_session(session, why)
        else:
            task = self._task(id)
            LOG.warning("%s evicts task %s of %s", who.user, id, task.user)
            self._dispatcher.cancel(task, why)
        await self._store.durable()
        return self._sessions.view(who, id) if session is not None else self._tasks.status(who, id)

    async def hold(self, who: Caller, id: str) -> View:
        """Keep a queued task from being started."""
        task = self._task_for(who, id, "held")
        self._dispatcher.handle(TaskHeld(id))
        return await self._counted(who, task)

    async def release(self, who: Caller, id: str) -> View:
        """Let a task run that was held."""
        task = self._task_for(who, id, "released")
        self._dispatcher.handle(TaskReleased(id))
        return await self._counted(who, task)

    async def requeue(self, who: Caller, id: str) -> View:
        """Take a task back from its device and queue it again."""
        task = self._task_for(who, id, "requeued")
        self._dispatcher.handle(TaskRequeued(id))
        self._registry.want_back(task, again=True)
        await self._store.durable()
        return self._tasks.status(who, id)

    async def _counted(self, who: Caller, task: TaskRecord) -> View:
        if self._core.knows(task.id):
            self._registry.set_counted(task, self._core.counted(task.id))
            self._registry.publish(task)
        await self._store.durable()
        return self._tasks.status(who, task.id)

    def _task_for(self, who: Caller, id: str, done: str) -> TaskRecord:
        who.require_admin()
        task = self._task(id)
        LOG.warning("%s: task %s of %s is %s", who.user, id, task.user, done)
        return task

    def _task(self, id: str) -> TaskRecord:
        if (task := self._registry.tasks.get(id)) is None:
            raise NotFound(f"there is no task or session {id} that is not over", hint="qloom broker tasks")
        return task
