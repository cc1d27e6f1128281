"""What task calls and session calls share: idempotency keys, who may see what, waiting for a time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

from qloom.broker.board import Board
from qloom.broker.problems import StoreFull
from qloom.broker.store.records import Caller, Live, LiveSession

View = dict[str, Any]
Key = tuple[str, str, str, str]  # table, user, project, key


class Desk(Board):
    """A board that callers can come to."""

    new_id: Callable[[], str] = staticmethod(lambda: secrets.token_hex(8))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pending_keys: dict[Key, str] = {}

    def by_key(self, key: Key) -> str | None:
        """The task or session that was made with this key."""
        if (pending := self._pending_keys.get(key)) is not None:
            return pending
        sql = f"SELECT id FROM {key[0]} WHERE user = ? AND project = ? AND key = ?"  # noqa: S608
        row = self.store.row(sql, *key[1:])
        return str(row["id"]) if row is not None else None

    async def accept(self, new: Live | LiveSession, key: Key | None) -> None:
        """Wait until something new is durable; raises `StoreFull` if it cannot be."""
        if key is not None:
            self._pending_keys[key] = new.id
        try:
            # The answer may no longer be wanted, but what was staged will be committed all the same.
            await asyncio.shield(self.store.durable(new.id))
        finally:
            if key is not None:
                self._pending_keys.pop(key, None)

    async def settled(self, id: str) -> None:
        """Wait for the disk on behalf of whoever came second with a key."""
        await self.store.durable(id)

    def may_see(self, who: Caller, project: str) -> bool:
        """Members see their project's tasks; who runs the site sees that there are some."""
        return project in who.projects or who.admin

    require_job_for_tasks = False

    async def require_job(self, who: Caller, slurm_job: str | None, device: str) -> str:
        """Refuse a task of a caller whose Slurm job holds no share of a device; returns the job's name here."""
        raise NotImplementedError

    def session(self, who: Caller, session: str) -> View:
        """How a session stands."""
        raise NotImplementedError

    def usable_session(self, who: Caller, name: str) -> LiveSession:
        """An open or waiting session that the caller may run tasks in."""
        raise NotImplementedError

    def as_seen(self, who: Caller, view: View) -> View:
        """A task as a caller may see it: whose session it runs in is for those to know who may use that."""
        if view["session"] is not None and view["user"] != who.user and not who.admin:
            session = self.sessions.get(view["session"])
            if session is None or not session.usable_by(who):
                view["session"] = None
        if view["project"] not in who.projects:
            view["name"] = None
        return view

    async def within(self, future: asyncio.Future[None], seconds: float | None) -> bool:
        """Wait for a future for some time; whether it came."""
        if seconds is None:
            await future
            return True

        def give_up() -> None:
            if not future.done():
                future.cancel("time is up")

        cancel = self.clock.deadline(seconds, give_up)
        try:
            await asyncio.wait([future])
        finally:
            cancel()
        return not future.cancelled()


def refuse_again() -> StoreFull:
    """For whoever asks again for what could not be stored."""
    return StoreFull("the broker cannot store this", hint="nothing was accepted; try again when there is room")
