"""What is durable of sessions, and of what administrators have set of devices: each change as one named statement."""

from __future__ import annotations

from typing import Any

from qloom.broker.records import SessionRecord
from qloom.broker.store.database import Database
from qloom.model import QpuHold

CLOSED_COLUMNS = "id, device, hold, user, project, shared, state, requested_us, opened_us, reason"


class SessionStore:
    """The table of sessions, over a `Database` that makes it durable."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.stage = database.stage
        self.then = database.then
        self.durable = database.durable

    def add(self, session: SessionRecord) -> None:
        """A new session, which may be refused for want of room."""
        self.database.stage_new(session.id)
        self.stage(
            "INSERT INTO sessions (id, user, project, device, hold, job, key, shared, state, requested_us) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'waiting', ?)",
            *(session.id, session.user, session.project, session.device, session.hold.value, session.job),
            *(session.key, int(session.shared), session.requested_us),
            group=session.id,
        )

    def open(self, session: SessionRecord) -> None:
        """A session holds its device, or its share."""
        sql = "UPDATE sessions SET state = 'open', opened_us = ? WHERE id = ?"
        self.stage(sql, session.opened_us, session.id, group=session.id)

    def take_turn(self, session: SessionRecord, task: str) -> None:
        """A task of a session was started; part of the same commit as that."""
        self.stage("UPDATE sessions SET turn_us = ? WHERE id = ?", session.turn_us, session.id, group=task)

    def set_job(self, session: str, job: str) -> None:
        """A session goes on in another job."""
        self.stage("UPDATE sessions SET job = ? WHERE id = ?", job, session, group=session)

    def close(self, session: str, why: str, now_us: int) -> None:
        """A session is over."""
        sql = "UPDATE sessions SET state = 'closed', closed_us = ?, reason = ? WHERE id = ?"
        self.stage(sql, now_us, why, session, group=session)

    def view(self, session: str) -> dict[str, Any]:
        """A session that was stored, as its owners see it; empty if there is none."""
        row = self.database.row(f"SELECT {CLOSED_COLUMNS} FROM sessions WHERE id = ?", session)  # noqa: S608
        return {**row, "shared": bool(row["shared"])} if row is not None else {}

    def load(self) -> list[SessionRecord]:
        """Sessions that are requested or open, in the order they were requested."""
        rows = self.database.rows(
            "SELECT *, CASE hold WHEN 'whole' THEN (SELECT max(ended_us) FROM tasks WHERE session = sessions.id) END "
            "AS last_us FROM sessions WHERE state != 'closed' ORDER BY number"
        )
        return [
            SessionRecord(
                id=row["id"],
                user=row["user"],
                project=row["project"],
                device=row["device"],
                hold=QpuHold(row["hold"]),
                job=row["job"],
                requested_us=row["requested_us"],
                key=row["key"],
                state=row["state"],
                opened_us=row["opened_us"],
                turn_us=row["turn_us"],
                shared=bool(row["shared"]),
                last_us=row["last_us"] or 0,
            )
            for row in rows
        ]


class DeviceSettings:
    """What administrators have set of devices: it holds over restarts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self) -> dict[str, tuple[bool, int | None]]:
        """Return what administrators have set, by device: drained or not, and its shares if they were changed."""
        rows = self._database.rows("SELECT * FROM devices")
        return {str(row["name"]): (bool(row["drained"]), row["shares"]) for row in rows}

    def set_drained(self, device: str, drained: bool) -> None:
        """Record whether an administrator has drained a device."""
        self._database.stage(
            "INSERT INTO devices (name, drained) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET drained = excluded.drained",
            *(device, int(drained)),
        )

    def set_shares(self, device: str, shares: int) -> None:
        """Record how many vQPUs a device is to offer."""
        self._database.stage(
            "INSERT INTO devices (name, shares) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET shares = excluded.shares",
            *(device, shares),
        )
