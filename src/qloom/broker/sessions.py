"""What callers can ask about sessions."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from qloom.broker.desk import Desk, Key, View, refuse_again
from qloom.broker.problems import Forbidden, NotFound, StoreFull, Unavailable
from qloom.broker.queue.events import Cancelled, SessionClosed
from qloom.broker.slurm import HOLD, MissingShares, SlurmSite
from qloom.broker.store.records import CLOSED_COLUMNS, Caller, LiveSession
from qloom.errors import Refused
from qloom.model import QpuHold

LOG = logging.getLogger("qloom.broker")
INSIDE = "open it inside the job"
SUBMIT_INSIDE = "submit it inside the job"
SLURM = "slurm-"  # and its number: the name of a Slurm job here


class SessionDesk(Desk):
    """Open, look, wait, close. With `slurm`, only for jobs that hold what they ask for.

    A session belongs to the user who opened it. The other members of its project may use it, and learn its id, only
    if it was opened as a shared one.
    """

    def __init__(
        self, *args: Any, slurm: SlurmSite | None = None, require_job_for_tasks: bool = False, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.slurm = slurm
        self._missing = MissingShares(slurm.confirm_s if slurm is not None else 0.0)
        self.require_job_for_tasks = require_job_for_tasks  # and not of sessions only

    async def open_session(
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
        session.used_us, session.shared = now_us, shared
        self.limit_hold(session)
        actions = self.core.handle(session.requested(), now_us)
        self.sessions[session.id] = session
        self.store.stage_new(session.id)
        self.store.stage(
            "INSERT INTO sessions (id, user, project, device, hold, job, key, shared, state, requested_us) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'waiting', ?)",
            *(session.id, who.user, project, device, hold.value, session.job, key, int(shared), now_us),
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

    async def require_job(self, who: Caller, slurm_job: str | None, device: str) -> str:
        """Refuse a task of a caller whose Slurm job holds no share of a device; returns the job's name here."""
        if self.slurm is None or slurm_job is None:
            raise Refused("a task needs a Slurm job that holds a share of the QPU", hint=SUBMIT_INSIDE)
        slurm_job, held = await self.slurm.shares_of(who, slurm_job, device, alone=self._alone)
        if held < 1:
            raise Refused(f"Slurm job {slurm_job} holds no share of QPU {device}", hint=SUBMIT_INSIDE)
        return f"{SLURM}{slurm_job}"

    async def check_jobs(self) -> None:
        """Close sessions, and cancel queued tasks, whose Slurm job holds their share no longer."""
        sessions = [(session, number) for session in self.sessions.values() if (number := _number(session.job))]
        tasks = [
            (task, number)
            for task in self.live.values()
            if self.require_job_for_tasks and task.submitted.session is None and (number := _number(task.job))
        ]
        if self.slurm is None or not (sessions or tasks):
            return
        try:
            parts = await self.slurm.holdings(*dict.fromkeys(number for _, number in (*sessions, *tasks)))
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
        for task, number in tasks:
            if self.live.get(task.id) is not task or task.state != "queued" or _number(task.job) != number:
                continue  # it is past that, or was moved meanwhile
            own, device = [part for part in parts if part.job == number], task.submitted.device
            if self.slurm.shares([part for part in own if part.state in HOLD], device, alone=self._alone) < 1:
                ended = self.slurm.has_ended(own, device, alone=self._alone)
                (over if ended else missing).append(task.id)
        for id in (*over, *self._missing.confirmed(missing, self.now_us())):
            self._end_without_share(id)

    def _end_without_share(self, id: str) -> None:
        """A session or a queued task whose Slurm job holds nothing for it."""
        if (session := self.sessions.get(id)) is not None:
            number = _number(session.job)
            self.close_now(session, f"Slurm job {number} holds no share of QPU {session.device} for it any more")
        elif (task := self.live.get(id)) is not None:
            number, device = _number(task.job), task.submitted.device
            self.note_unwanted(task)
            self.handle(Cancelled(id, f"Slurm job {number} holds no share of QPU {device} for it any more"))

    @property
    def _alone(self) -> bool:
        """Whether there is one device, so that shares of a QPU that is not named are its own."""
        return len(self.devices) == 1

    def _shares(self, device: str, hold: QpuHold) -> int:
        return self.core.shares(device) if hold is QpuHold.WHOLE else 1

    def session(self, who: Caller, session: str) -> View:
        """How a session stands. Others' sessions look as if they were not there."""
        live = self.sessions.get(session)
        if live is not None:
            view = live.view()
            if live.user == who.user and not who.read_only:  # whoever asks for it still wants it
                live.used_us = self.now_us()
        else:
            row = self.store.row(f"SELECT {CLOSED_COLUMNS} FROM sessions WHERE id = ?", session)  # noqa: S608
            view = {**row, "shared": bool(row["shared"])} if row is not None else {}
        if not view or not (who.admin or _may_use(who, view)):
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
        for task in self.live.values():
            if task.submitted.session == session.id:
                self.note_unwanted(task)
        self.note_session_closed(session, why)
        self.handle(SessionClosed(session.id, why))

    def usable_session(self, who: Caller, name: str) -> LiveSession:
        """An open or waiting session that the caller may run tasks in."""
        view = self.session(who, name)
        if not _may_use(who, view):  # an administrator's eyes, not their hands
            raise NotFound(f"there is no session {name}")
        if (session := self.sessions.get(name)) is None:
            why = f": {view['reason']}" if view["reason"] else ""
            raise Refused(f"session {name} is closed{why}", hint="open another")
        return session


def _may_use(who: Caller, view: View) -> bool:
    return view["project"] in who.projects and bool(view["user"] == who.user or view["shared"])


def _number(job: str) -> str:
    """The number of a Slurm job, by its name here; nothing if it is none."""
    number = job.removeprefix(SLURM)
    return number if number != job and number.isdigit() else ""
