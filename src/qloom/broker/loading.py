"""Reads from the store what was not over when the broker stopped."""

from __future__ import annotations

from qloom.broker.events import Submitted
from qloom.broker.records import Live, LiveSession
from qloom.broker.store import Store
from qloom.model import QpuHold


def load_tasks(store: Store) -> list[Live]:
    """Tasks that are not over, in the order they were accepted."""
    rows = store.rows(
        "SELECT t.*, h.token, h.device_id FROM tasks t "
        "LEFT JOIN handovers h ON h.task = t.id AND h.ended_us IS NULL "
        "WHERE t.ended_us IS NULL ORDER BY t.number"
    )
    return [
        Live(
            id=row["id"],
            user=row["user"],
            project=row["project"],
            name=row["name"],
            submitted=Submitted(
                row["id"],
                row["device"],
                row["session"],
                row["expected_s"],
                row["project"],
                row["job"],
                row["priority"],
                row["max_wait_s"],
                row["time_limit_s"],
                row["set_up"],
            ),
            submitted_us=row["submitted_us"],
            key=row["key"],
            job=row["job"],
            state=row["state"] if row["token"] is not None else "queued",
            attempts=row["attempts"],
            started_us=row["started_us"],
            executing_us=row["executing_us"] if row["token"] is not None else None,
            token=row["token"],
            device_id=row["device_id"],
            reattached=row["token"] is not None,
            stop_wanted=bool(row["unwanted"]),
            billed_s=row["billed_s"],
        )
        for row in rows
    ]


def load_sessions(store: Store) -> list[LiveSession]:
    """Sessions that are asked for or open, in the order they were asked for."""
    return [
        LiveSession(
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
        )
        for row in store.rows("SELECT * FROM sessions WHERE state != 'closed' ORDER BY number")
    ]
