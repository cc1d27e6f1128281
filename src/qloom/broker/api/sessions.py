"""What callers may do with sessions: open, look, wait, close.

A session belongs to the user who opened it. The other members of its project may use it, and learn its id, only if it
was opened as a shared one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from qloom.broker.clock import BrokerTime
from qloom.broker.dispatcher import Dispatcher
from qloom.broker.problems import Conflict, Forbidden, NotFound, StoreFull
from qloom.broker.queue.core import QueueCore
from qloom.broker.records import SessionRecord
from qloom.broker.registry import TaskRegistry
from qloom.broker.requests import Caller
from qloom.broker.slurm_shares import SlurmShares
from qloom.broker.store.session_store import SessionStore
from qloom.broker.store.task_store import View
from qloom.broker.stored import IdempotencyKey, KeyRing, not_stored
from qloom.errors import Refused
from qloom.model import QpuHold


class SessionApi:
    """Sessions, for their owners. With `shares`, only for Slurm jobs that hold what they ask for."""

    def __init__(
        self,
        core: QueueCore,
        dispatcher: Dispatcher,
        registry: TaskRegistry,
        store: SessionStore,
        time: BrokerTime,
        keys: KeyRing,
        shares: SlurmShares | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._core, self._dispatcher, self._registry, self._store = core, dispatcher, registry, store
        self._time, self._keys, self._shares = time, keys, shares
        self.new_id = new_id

    async def open(
        self,
        who: Caller,
        device: str,
        hold: QpuHold,
        project: str | None = None,
        job: str | None = None,
        key: str | None = None,
        slurm_job: str | None = None,
        shared: bool = False,
    ) -> View:
        """Request a device or a share of it; it is open at once or later: see `wait_open`."""
        project = who.project(project)
        full_key = IdempotencyKey("sessions", who.user, project, key) if key is not None else None
        view = await self._made_with_key(who, full_key)
        if view is not None and (view["device"], view["hold"], view["shared"]) != (device, hold.value, shared):
            raise Conflict(
                "this idempotency key was used for another session", hint="use a new key for a new session"
            )
        if self._shares is not None and (view is None or self._is_of_another(view, slurm_job)):
            slurm_job, held = await self._shares.of_session(who, slurm_job, device)
            view = await self._made_with_key(who, full_key)  # it may have been sent twice meanwhile
            own = view["id"] if view is not None else None
            job = self._shares.require_session(slurm_job, held, device, hold, own)
            if view is not None:
                self._move(view["id"], job)
                await self._store.durable()
        if view is not None:
            return view
        now_us = self._time.now_us()
        session = SessionRecord(self.new_id(), who.user, project, device, hold, job or who.user, now_us, key)
        session.used_us, session.shared = now_us, shared
        session.limit_hold(self._core.ledger.project(project))
        actions = self._core.handle(session.requested(), now_us)  # raises if it is not admitted
        self._registry.add_session(session)
        self._dispatcher.carry_out(actions)
        try:
            await self._keys.accept(session.id, full_key)
        except StoreFull:
            self._dispatcher.close_session(session)
            raise
        return session.view()

    async def _made_with_key(self, who: Caller, key: IdempotencyKey | None) -> View | None:
        """The session that was made with this key before."""
        if (id := await self._keys.made_with(key)) is None:
            return None
        if not self._store.view(id):
            raise not_stored()
        return self.view(who, id)

    def _is_of_another(self, view: View, slurm_job: str | None) -> bool:
        """Whether a session was opened by another Slurm job: that of a driver that was killed, and is resumed."""
        session = self._registry.sessions.get(view["id"])
        return session is not None and slurm_job is not None and session.job != SlurmShares.job_name(slurm_job)

    def _move(self, id: str, job: str) -> None:
        """A session goes on in another Slurm job."""
        if (session := self._registry.sessions.get(id)) is not None:
            session.job = job
            self._store.set_job(id, job)

    def view(self, who: Caller, id: str) -> View:
        """How a session stands. Others' sessions look as if they were not there."""
        session = self._registry.sessions.get(id)
        if session is not None:
            view = session.view()
            if session.user == who.user and not who.read_only:  # whoever asks for it still wants it
                session.used_us = self._time.now_us()
        else:
            view = self._store.view(id)
        if not view or not (who.admin or _may_use(who, view)):
            raise NotFound(f"there is no session {id}")
        return view

    async def wait_open(self, who: Caller, id: str, within_s: float | None = None) -> View:
        """`view` once the session is open or closed, or when the time is up."""
        view = self.view(who, id)
        session = self._registry.sessions.get(id)
        if view["state"] == "waiting" and session is not None:
            await self._registry.wait(session.changed, within_s)
        return self.view(who, id)

    async def close(self, who: Caller, id: str) -> View:
        """End a session; its tasks that are not over are cancelled. May be called again."""
        view = self.view(who, id)
        session = self._registry.sessions.get(id)
        if session is not None:
            if session.user != who.user and not who.admin:
                raise Forbidden(f"session {id} belongs to somebody else in project {session.project}")
            self._dispatcher.close_session(session)
        await self._store.durable()
        return {**view, "state": "closed"}

    def close_idle(self, idle_s: float) -> None:
        """Close sessions that nobody has used for `idle_s` seconds."""
        now_us = self._time.now_us()
        busy = {task.session: None for task in self._registry.tasks.values()}
        for session in list(self._registry.sessions.values()):
            if session.id not in busy and now_us - session.used_us > idle_s * 1e6:
                self._dispatcher.close_session(session, f"it was not used for {idle_s:g} s")

    def usable(self, who: Caller, id: str) -> SessionRecord:
        """An open or waiting session that the caller may run tasks in."""
        view = self.view(who, id)
        if not _may_use(who, view):  # an administrator's eyes, not their hands
            raise NotFound(f"there is no session {id}")
        if (session := self._registry.sessions.get(id)) is None:
            why = f": {view['reason']}" if view["reason"] else ""
            raise Refused(f"session {id} is closed{why}", hint="open another")
        return session


def _may_use(who: Caller, view: View) -> bool:
    return view["project"] in who.projects and bool(view["user"] == who.user or view["shared"])
