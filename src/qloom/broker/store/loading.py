"""Reads from the store what was not over when the broker stopped."""

from __future__ import annotations

import json

from qloom.broker.queue.events import Place, Submitted
from qloom.broker.queue.lines import Counted
from qloom.broker.store.records import Live, LiveSession
from qloom.broker.store.store import Store
from qloom.model import QpuHold

TO_BE_QUEUED = 2  # of `unwanted`: it is being taken back from its device, to be queued again


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
                places_from(row["places"]),
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
            wanted_again=row["unwanted"] == TO_BE_QUEUED,
            billed_s=row["billed_s"],
            held=row["held_us"] is not None,
            counted=Counted(
                row["held_us"],
                row["uncounted_us"],
                row["spent"],
                row["ran_us"],
                runs=row["state"] != "executing" or row["counted_us"] is not None,
            ),
            counted_us=row["counted_us"],
        )
        for row in rows
    ]


def places_text(places: tuple[Place, ...]) -> str | None:
    """Where else a task may run, as the store keeps it."""
    return json.dumps([vars(place) for place in places]) if places else None


def places_from(text: str | None) -> tuple[Place, ...]:
    """As it was."""
    return tuple(Place(**place) for place in json.loads(text)) if text is not None else ()


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
            last_us=row["last_us"] or 0,
        )
        for row in store.rows(
            "SELECT *, CASE hold WHEN 'whole' THEN (SELECT max(ended_us) FROM tasks WHERE session = sessions.id) END "
            "AS last_us FROM sessions WHERE state != 'closed' ORDER BY number"
        )
    ]
