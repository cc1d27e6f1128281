"""What is durable of tasks, and of what projects have used: each change as one named statement.

Nothing here decides anything. All statements about a task carry its id as their group, so that they are committed, or
refused, together. What is read was committed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from qloom.broker.queue.task import Counted, Place
from qloom.broker.records import TaskRecord
from qloom.broker.requests import read_payload
from qloom.broker.store.database import Database
from qloom.model import JsonText, Payload

TO_BE_QUEUED = 2  # of `unwanted`: it is being taken back from its device, to be queued again
ENDED_COLUMNS = (
    "id, name, user, project, device, session, state, 0 AS held, reason, attempts, expected_s, submitted_us, "
    "started_us, executing_us, ended_us, billed_s, calibration"
)

View = dict[str, Any]


class TaskStore:
    """The tables about tasks, over a `Database` that makes them durable."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.stage = database.stage
        self.then = database.then
        self.durable = database.durable

    # Tasks: writing

    def add_task(self, task: TaskRecord, digest: str, payload: str) -> None:
        """A new task, which may be refused for want of room."""
        self.database.stage_new(task.id)
        self.stage(
            "INSERT INTO tasks (id, user, project, device, session, job, name, key, digest, expected_s, priority, "
            "max_wait_s, time_limit_s, set_up, places, state, submitted_us, note) "
            "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,'queued',?,?)",
            *(task.id, task.user, task.project, task.device, task.session, task.job, task.name),
            *(task.key, digest, task.expected_s, task.priority, task.max_wait_s),
            *(task.time_limit_s, task.set_up, _places_text(task.places), task.submitted_us, task.note),
            group=task.id,
        )
        self.stage("INSERT INTO payloads VALUES (?, ?)", task.id, payload, group=task.id)

    def start_task(self, task: TaskRecord, now_us: int) -> None:
        """A task is about to be handed to its device: the token is durable before the device sees it."""
        self.stage(
            "UPDATE tasks SET state = 'preparing', attempts = ?, started_us = ? WHERE id = ?",
            *(task.attempts, task.started_us, task.id),
            group=task.id,
        )
        self.stage(  # a token comes twice only if the device said that it does not know it
            "INSERT INTO handovers (token, task, device, began_us) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (token) DO UPDATE SET began_us = excluded.began_us, ended_us = NULL, outcome = NULL",
            *(task.token, task.id, task.device, now_us),
            group=task.id,
        )

    def hand_over(self, task: TaskRecord) -> None:
        """The device has taken a task under its own id."""
        sql = "UPDATE handovers SET device_id = ? WHERE token = ?"
        self.stage(sql, task.device_id, task.token, group=task.id)

    def end_handover(self, task: TaskRecord, outcome: str, billed_s: float, now_us: int) -> None:
        """An attempt is over."""
        self.stage(
            "UPDATE handovers SET ended_us = ?, outcome = ?, billed_s = ? WHERE token = ?",
            *(now_us, outcome, billed_s, task.token),
            group=task.id,
        )

    def set_state(self, task: str, state: str, executing_us: int | None) -> None:
        """The state of a task on its device; its execution counts from `executing_us` on."""
        sql = "UPDATE tasks SET state = ?, executing_us = ?, counted_us = ?, ran_us = 0 WHERE id = ?"
        self.stage(sql, state, executing_us, executing_us, task, group=task)

    def set_counted(self, task: str, counted: Counted) -> None:
        """What of a task's waiting and attempts counts."""
        self.stage(
            "UPDATE tasks SET held_us = ?, uncounted_us = ?, spent = ? WHERE id = ?",
            *(counted.held_us, counted.uncounted_us, counted.spent, task),
            group=task,
        )

    def count_execution(self, task: str, ran_us: int, since_us: int | None) -> None:
        """Execution of a task counts from `since_us` on, or not while its device is away."""
        self.stage("UPDATE tasks SET ran_us = ?, counted_us = ? WHERE id = ?", ran_us, since_us, task, group=task)

    def move_task(self, task: TaskRecord) -> None:
        """Record that a task now waits for another device."""
        self.stage(
            "UPDATE tasks SET device = ?, expected_s = ?, time_limit_s = ?, set_up = ?, places = ? WHERE id = ?",
            *(task.device, task.expected_s, task.time_limit_s, task.set_up),
            *(_places_text(task.places), task.id),
            group=task.id,
        )

    def set_job(self, task: str, job: str) -> None:
        """A task goes on in another job."""
        self.stage("UPDATE tasks SET job = ? WHERE id = ?", job, task, group=task)

    def set_unwanted(self, task: str, mark: int = 1) -> None:
        """A task is to be taken back from its device, also after a restart: for good, or `TO_BE_QUEUED`."""
        self.stage("UPDATE tasks SET unwanted = ? WHERE id = ?", mark, task, group=task)

    def requeue_task(self, task: TaskRecord) -> None:
        """A task waits again."""
        self.stage(
            "UPDATE tasks SET state = 'queued', attempts = ?, executing_us = NULL, billed_s = ?, unwanted = 0 "
            "WHERE id = ?",
            *(task.attempts, task.billed_s, task.id),
            group=task.id,
        )

    def end_task(self, task: TaskRecord, state: str, reason: str, now_us: int) -> None:
        """A task is over, with its result if it is done; its payload is no longer needed."""
        self.stage(
            "UPDATE tasks SET state = ?, reason = ?, ended_us = ?, billed_s = ?, attempts = ?, calibration = ? "
            "WHERE id = ?",
            *(state, reason, now_us, task.billed_s, task.attempts, task.calibration, task.id),
            group=task.id,
        )
        if state == "done":
            self.stage("INSERT OR REPLACE INTO results VALUES (?, ?)", task.id, task.result, group=task.id)
        self.stage("DELETE FROM payloads WHERE task = ?", task.id, group=task.id)

    def set_usage(self, project: str, used_s: float, usage: Mapping[str, Any]) -> None:
        """What a project has used, and the usage of all behind fair shares."""
        self.stage(
            "INSERT INTO projects VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET used_s = excluded.used_s",
            *(project, used_s),
        )
        self.database.put("usage", json.dumps(usage))

    # Tasks: reading

    def payload(self, task: str) -> Payload:
        """The payload of a task that is not over."""
        row = self.database.row("SELECT envelope FROM payloads WHERE task = ?", task)
        assert row is not None  # noqa: S101
        return read_payload(row["envelope"])

    def result(self, task: str) -> JsonText | None:
        """The result of a task that is done: JSON that is passed on unread."""
        row = self.database.row("SELECT body FROM results WHERE task = ?", task)
        return JsonText(row["body"]) if row is not None else None

    def digest(self, task: str) -> str | None:
        """What the idempotency key of a task stands for; None if the task was not stored."""
        row = self.database.row("SELECT digest FROM tasks WHERE id = ?", task)
        return str(row["digest"]) if row is not None else None

    def note(self, task: str) -> str:
        """What the door that a task came through keeps with it; empty for a task of our own clients, or for none."""
        row = self.database.row("SELECT note FROM tasks WHERE id = ?", task)
        return str(row["note"]) if row is not None else ""

    def task_view(self, task: str) -> View:
        """A task that is over, as its owners see it; empty if there is none."""
        row = self.database.row(f"SELECT {ENDED_COLUMNS} FROM tasks WHERE id = ?", task)  # noqa: S608
        return {**row, "held": False} if row is not None else {}

    def made_with_key(self, table: str, user: str, project: str, key: str) -> str | None:
        """The id of the task or session that was made with an idempotency key; `table` is tasks or sessions."""
        sql = f"SELECT id FROM {table} WHERE user = ? AND project = ? AND key = ?"  # noqa: S608
        row = self.database.row(sql, user, project, key)
        return str(row["id"]) if row is not None else None

    def usage(self) -> tuple[dict[str, float], dict[str, Any]]:
        """What each project has used, and the usage behind fair shares."""
        rows = self.database.rows("SELECT * FROM projects")
        used_s = {str(row["name"]): float(row["used_s"]) for row in rows}
        usage: dict[str, Any] = json.loads(self.database.get("usage", '{"seconds": {}, "as_of_us": 0}'))
        return used_s, usage

    def load_tasks(self) -> list[TaskRecord]:
        """Tasks that are not over, in the order they were accepted."""
        rows = self.database.rows(
            "SELECT t.*, h.token, h.device_id FROM tasks t "
            "LEFT JOIN handovers h ON h.task = t.id AND h.ended_us IS NULL "
            "WHERE t.ended_us IS NULL ORDER BY t.number"
        )
        return [
            TaskRecord(
                id=row["id"],
                user=row["user"],
                project=row["project"],
                name=row["name"],
                device=row["device"],
                session=row["session"],
                job=row["job"],
                submitted_us=row["submitted_us"],
                expected_s=row["expected_s"],
                priority=row["priority"],
                max_wait_s=row["max_wait_s"],
                time_limit_s=row["time_limit_s"],
                set_up=row["set_up"],
                places=_places_from(row["places"]),
                key=row["key"],
                note=row["note"],
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

    # Time

    def forget_ended(self, before_us: int) -> None:
        """Delete tasks with their results, and sessions, that were over before a time."""
        if self.database.row("SELECT 1 FROM tasks WHERE ended_us < ? LIMIT 1", before_us) is not None:
            old = "(SELECT id FROM tasks WHERE ended_us < ?)"
            self.stage(f"DELETE FROM results WHERE task IN {old}", before_us)  # noqa: S608
            self.stage("DELETE FROM tasks WHERE ended_us < ?", before_us)
            self.stage("DELETE FROM sessions WHERE closed_us < ?", before_us)


def _places_text(places: tuple[Place, ...]) -> str | None:
    return json.dumps([vars(place) for place in places]) if places else None


def _places_from(text: str | None) -> tuple[Place, ...]:
    return tuple(Place(**place) for place in json.loads(text)) if text is not None else ()
