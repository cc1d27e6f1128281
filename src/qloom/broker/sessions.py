"""What callers can ask about sessions."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from qloom.broker.desk import Desk, Key, View, refuse_again
from qloom.broker.events import SessionClosed, SessionRequested
from qloom.broker.problems import Forbidden, NotFound, StoreFull, Unavailable
from qloom.broker.records import Caller, LiveSession
from qloom.broker.slurm import HOLD, MissingShares, SlurmSite
from qloom.errors import Refused
from qloom.model import QpuHold

LOG = logging.getLogger("qloom.broker")
INSIDE = "open it inside the job"
SLURM = "slurm-"  # and its number: the name of a Slurm job here
WHY_KEPT = 1000


class SessionDesk(Desk):
    """Open, look, wait, close. With `slurm`, only for jobs that hold what they ask for."""

    def __init__(self, *args: Any, slurm: SlurmSite | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.slurm = slurm
        self._missing = MissingShares(slurm.confirm_s if slurm is not None else 0.0)
        self._closed_why: dict[str, str] = {}  # of the last that the broker itself has closed

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
        view = await self._made_with(who, full_key)
        if self.slurm is not None and (view is None or self._is_of_another(view, slurm_job)):
            if slurm_job is None:
                raise Refused("a session needs a Slurm job that holds a share of the QPU", hint=INSIDE)
            slurm_job, held = await self.slurm.shares_of(who, slurm_job, device, alone=self._alone)
            view = await self._made_with(who, full_key)  # it may have been sent twice meanwhile
            job = self._require_shares(slurm_job, held, device, hold, view)
            if view is not None:
                self._move(view, job)
                await self.store.durable()
        if view is not None:
            return view
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

    def _require_shares(self, slurm_job: str, held: int, device: str, hold: QpuHold, known: View | None) -> str:
        """Refuse a session beyond what its Slurm job was given; returns the name of the job here."""
        job = f"{SLURM}{slurm_job}"
        own = known["id"] if known is not None else None
        others = [one for one in self.sessions.values() if (one.job, one.device) == (job, device) and one.id != own]
        wanted = sum(self._shares(session.device, session.hold) for session in others) + self._shares(device, hold)
        if wanted > held:
            told = f"Slurm job {slurm_job} holds {held} shares of QPU {device}"
            raise Refused(f"{told}, and its sessions here would hold {wanted}")
        return job

    def _is_of_another(self, view: View, slurm_job: str | None) -> bool:
        """Whether a session was opened by another Slurm job: that of a driver that was killed, and is resumed."""
        live = self.sessions.get(view["id"])
        return live is not None and slurm_job is not None and live.job != f"{SLURM}{slurm_job}"

    def _move(self, view: View, job: str) -> None:
        """A session goes on in another Slurm job."""
        if (live := self.sessions.get(view["id"])) is not None:
            live.job = job
            self.store.stage("UPDATE sessions SET job = ? WHERE id = ?", job, live.id, group=live.id)

    async def check_jobs(self) -> None:
        """Close sessions whose Slurm job holds their share no longer: it ended, or its QPU was given back."""
        numbers = ((session, session.job.removeprefix(SLURM)) for session in self.sessions.values())
        sessions = [(session, number) for session, number in numbers if number.isdigit()]
        if self.slurm is None or not sessions:
            return
        try:
            parts = await self.slurm.holdings(*dict.fromkeys(number for _, number in sessions))
        except Unavailable as error:
            LOG.warning("sessions stay as they are: %s", error.message)
            self._missing.forget_all()
            return
        left: dict[tuple[str, str], int] = {}
        missing, over = [], []
        for session, number in sessions:
            place = number, session.device
            if self.sessions.get(session.id) is not session or session.job != f"{SLURM}{number}":
                continue  # it was closed or moved meanwhile
            own = [part for part in parts if part.job == number]
            if place not in left:
                held = [part for part in own if part.state in HOLD]
                left[place] = self.slurm.shares(held, session.device, alone=self._alone)
            if left[place] > 0:
                left[place] -= left[place] if session.hold is QpuHold.WHOLE else 1
            elif self.slurm.has_ended(own, session.device, alone=self._alone):
                over.append(session.id)
            else:
                missing.append(session.id)
        for id in (*over, *self._missing.confirmed(missing, self.now_us())):
            session = self.sessions[id]
            number = session.job.removeprefix(SLURM)
            self.close_now(session, f"Slurm job {number} holds no share of QPU {session.device} for it any more")

    @property
    def _alone(self) -> bool:
        """Whether there is one device, so that shares of a QPU that is not named are its own."""
        return len(self.devices) == 1

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
            try:
                await self.within(told, within_s)
            finally:  # whoever polls a session that waits for long must leave nothing behind
                if told in live.waiters:
                    live.waiters.remove(told)
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

    def close_now(self, session: LiveSession, why: str = "") -> None:
        """End a session without asking; `why` is what its users are told."""
        if why:
            LOG.info("session %s is closed: %s", session.id, why)
            self._closed_why[session.id] = why
            if len(self._closed_why) > WHY_KEPT:
                del self._closed_why[next(iter(self._closed_why))]
        for task in self.live.values():
            if task.submitted.session == session.id:
                self.note_unwanted(task)
        self.note_session_closed(session)
        self.handle(SessionClosed(session.id, why))

    def own_session(self, who: Caller, name: str) -> LiveSession:
        """An open or waiting session of the caller's projects."""
        session = self.sessions.get(name)
        if session is None or session.project not in who.projects:
            if self.session(who, name)["project"] not in who.projects:  # an administrator's eyes, not their hands
                raise NotFound(f"there is no session {name}")
            why = self._closed_why.get(name)
            raise Refused(f"session {name} is closed" + (f": {why}" if why else ""), hint="open another")
        return session
