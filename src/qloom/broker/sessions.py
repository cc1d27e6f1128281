"""What callers can ask about sessions."""

from __future__ import annotations

import asyncio
from typing import Any

from qloom.broker.desk import Desk, Key, View, refuse_again
from qloom.broker.events import SessionClosed, SessionRequested
from qloom.broker.problems import Forbidden, NotFound, StoreFull
from qloom.broker.records import Caller, LiveSession
from qloom.broker.slurm import SlurmSite
from qloom.errors import Refused
from qloom.model import QpuHold

INSIDE = "open it inside the job"


class SessionDesk(Desk):
    """Open, look, wait, close. With `slurm`, only for jobs that hold what they ask for."""

    def __init__(self, *args: Any, slurm: SlurmSite | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.slurm = slurm

    async def open_session(
        self,
        who: Caller,
        device: str,
        hold: QpuHold,
        project: str | None = None,
        job: str | None = None,
        key: str | None = None,
        slurm_job: str | None = None,
    ) -> View:
        """Ask for a device or a share of it; it is open at once or later: see `wait_open`."""
        project = who.project(project)
        full_key: Key | None = ("sessions", who.user, project, key) if key is not None else None
        if (view := await self._made_with(who, full_key)) is not None:
            return view
        if self.slurm is not None:
            if slurm_job is None:
                raise Refused("a session needs a Slurm job that holds a share of the QPU", hint=INSIDE)
            held = await self.slurm.shares_of(who, slurm_job)
            if (view := await self._made_with(who, full_key)) is not None:  # it was sent twice meanwhile
                return view
            job = self._require_shares(slurm_job, held, device, hold)
        now_us = self.now_us()
        session = LiveSession(self.new_id(), who.user, project, device, hold, job or who.user, now_us, key)
        session.used_us = now_us
        actions = self.core.handle(SessionRequested(session.id, device, hold, project, session.job), now_us)
        self.sessions[session.id] = session
        self.store.stage_new(session.id)
        self.store.stage(
            "INSERT INTO sessions (id, user, project, device, hold, job, key, state, requested_us) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', ?)",
            *(session.id, who.user, project, device, hold.value, session.job, key, now_us),
            group=session.id,
        )
        self.apply(actions)
        try:
            await self.accept(session, full_key)
        except StoreFull:
            self.close_now(session)
            raise
        return session.view()

    async def _made_with(self, who: Caller, key: Key | None) -> View | None:
        """The session that was made with this key."""
        if key is None or (known := self.by_key(key)) is None:
            return None
        await self.settled(known)
        if self.store.row("SELECT id FROM sessions WHERE id = ?", known) is None:
            raise refuse_again()
        return self.session(who, known)

    def _require_shares(self, slurm_job: str, held: int, device: str, hold: QpuHold) -> str:
        """Refuse a session beyond what its Slurm job was given; returns the name of the job here."""
        job = f"slurm-{slurm_job}"
        others = [session for session in self.sessions.values() if session.job == job]
        wanted = sum(self._shares(session.device, session.hold) for session in others) + self._shares(device, hold)
        if wanted > held:
            raise Refused(f"Slurm job {slurm_job} holds {held} shares, and its sessions here would hold {wanted}")
        return job

    def _shares(self, device: str, hold: QpuHold) -> int:
        return self.core.shares(device) if hold is QpuHold.WHOLE else 1

    def session(self, who: Caller, session: str) -> View:
        """How a session stands."""
        live = self.sessions.get(session)
        if live is not None:
            view = live.view()
            if live.user == who.user:  # whoever asks for it still wants it
                live.used_us = self.now_us()
        else:
            sql = "SELECT id, device, hold, project, state, requested_us, opened_us FROM sessions WHERE id = ?"
            row = self.store.row(sql, session)
            view = dict(zip(row.keys(), row, strict=True)) if row is not None else {}
        if not view or not self.may_see(who, view["project"]):
            raise NotFound(f"there is no session {session}")
        return view

    async def wait_open(self, who: Caller, session: str, within_s: float | None = None) -> View:
        """`session` once it is open or closed, or when the time is up."""
        view = self.session(who, session)
        live = self.sessions.get(session)
        if view["state"] == "waiting" and live is not None:
            told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            live.waiters.append(told)
            await self.within(told, within_s)
        return self.session(who, session)

    async def close_session(self, who: Caller, session: str) -> View:
        """End a session; its tasks that are not over are cancelled. May be called again."""
        view = self.session(who, session)
        live = self.sessions.get(session)
        if live is not None:
            if live.user != who.user and not who.admin:
                raise Forbidden(f"session {session} belongs to somebody else in project {live.project}")
            self.close_now(live)
        await self.store.durable()
        return {**view, "state": "closed"}

    def close_now(self, session: LiveSession) -> None:
        """End a session without asking."""
        for task in self.live.values():
            if task.submitted.session == session.id:
                self.note_unwanted(task)
        self.note_session_closed(session)
        self.handle(SessionClosed(session.id))

    def own_session(self, who: Caller, name: str) -> LiveSession:
        """An open or waiting session of the caller's projects."""
        session = self.sessions.get(name)
        if session is None or session.project not in who.projects:
            if self.session(who, name)["project"] not in who.projects:  # an administrator's eyes, not their hands
                raise NotFound(f"there is no session {name}")
            raise Refused(f"session {name} is closed", hint="open another")
        return session
