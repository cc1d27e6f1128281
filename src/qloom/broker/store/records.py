"""What the service keeps of callers, tasks and sessions."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from qloom.broker.problems import Forbidden
from qloom.broker.queue.events import SessionRequested
from qloom.broker.queue.ledger import Project
from qloom.broker.queue.state import KnownSession
from qloom.broker.queue.task import NOTHING, Counted, Place, QuantumTask
from qloom.errors import InputError
from qloom.model import Payload, QpuHold
from qloom.payloads.wire import head_of, payload_under


@dataclass(frozen=True)
class Caller:
    """Who asks, for which projects they may, and whether they run the site."""

    user: str
    projects: tuple[str, ...] = ("default",)
    admin: bool = False
    uid: int | None = None  # on this machine, if a credential said so
    read_only: bool = False  # they may look, and change nothing
    token: str | None = None  # the hash of the token that they showed

    def require_method(self, method: str) -> None:
        """Refuse a request that changes something to who may only look."""
        if self.read_only and method not in ("GET", "HEAD", "OPTIONS"):
            raise Forbidden(f"this token of user {self.user} may only read", hint="use one with the scope submit")

    def covers(self, before: Caller) -> bool:
        """Whether this caller may still do all that they could before."""
        kept = all(project in self.projects for project in before.projects)
        return kept and self.admin >= before.admin and self.read_only <= before.read_only

    def project(self, wanted: str | None) -> str:
        """The project to charge: the one that was named, or the caller's first."""
        if not self.projects:
            raise Forbidden(f"user {self.user} is in no project", hint="ask the site to add you to one")
        if wanted is not None and wanted not in self.projects:
            raise Forbidden(f"user {self.user} is not in project {wanted}", hint=f"use {', '.join(self.projects)}")
        return wanted or self.projects[0]

    def may_see(self, project: str) -> bool:
        """Members see their project's tasks; who runs the site sees that there are some."""
        return project in self.projects or self.admin

    def require_admin(self) -> None:
        """Refuse who does not run the site."""
        if not self.admin:
            hint = "ask an administrator, whom [auth] admins in the broker's config names"
            raise Forbidden(f"user {self.user} does not run this broker", hint=hint)


ANY_DEVICE = "*"


@dataclass(frozen=True)
class TaskRequest:
    """A task as submitted by a client."""

    payload: Payload
    device: str | None = None
    project: str | None = None
    session: str | None = None
    job: str | None = None
    name: str = "quantum"
    priority: int = 0
    max_wait_s: float | None = None
    time_limit_s: float | None = None
    key: str | None = None  # the same key never makes a second task
    slurm_job: str | None = None  # that holds a share of the device, where the broker asks for one
    devices: tuple[str, ...] = ()  # several that it may run on; `ANY_DEVICE`: any that fits

    known_digest: str = ""  # if it was found where the body was read

    def digest(self) -> str:
        """What a key stands for, in whichever session and Slurm job: a run that was resumed has others."""
        if self.known_digest:
            return self.known_digest
        given = self.payload
        payload = {name: getattr(given, name) for name in ("kind", "shots", "seconds", "options")}
        left_out = ("payload", "known_digest", "slurm_job")
        own = {name: value for name, value in vars(self).items() if name not in left_out}
        whole = {**own, "session": None, "envelope": {**payload, "body": given.value}}
        if not self.devices:
            del whole["devices"]  # keys of brokers that knew nothing of it go on to hold
        return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()


def stored_payload(payload: Payload) -> str:
    """As the store keeps it: a line for the head, and behind it the body."""
    return f"{json.dumps(head_of(payload), allow_nan=False)}\n{payload.text}"


def read_payload(text: str) -> Payload:
    """As it was; the body stays unread. Before there were heads, a payload was one line."""
    head, line_break, body = text.partition("\n")
    return payload_under(json.loads(head), body) if line_break else Payload(**json.loads(text))


@dataclass(eq=False)
class TaskRecord:
    """A task that is not over, as the service and its store keep it."""

    id: str
    user: str
    project: str
    name: str
    device: str
    session: str | None
    job: str  # that it belongs to: the Slurm job that it goes on in, if that changes
    submitted_us: int
    expected_s: float = 0.0
    priority: int = 0
    max_wait_s: float | None = None
    time_limit_s: float | None = None
    set_up: str | None = None
    places: tuple[Place, ...] = ()
    key: str | None = None
    state: str = "queued"
    attempts: int = 0
    started_us: int | None = None  # first handed over
    executing_us: int | None = None  # of the present attempt
    token: str | None = None  # of the present attempt
    device_id: str | None = None
    reattached: bool = False  # whether another run of the broker handed it over
    stop_wanted: bool = False
    over: bool = False  # its end is on its way to the store
    refused: bool = False  # it could not be stored, so it was never accepted
    result: str | None = None
    error: str = ""
    billed_s: float | None = None  # by all attempts
    held: bool = False  # an administrator holds it
    wanted_again: bool = False  # once it is taken back from its device, it is queued again
    counted: Counted = NOTHING  # as it was when the broker stopped
    counted_us: int | None = None  # since when its execution counts, then

    def quantum_task(self) -> QuantumTask:
        """As it is submitted to the queue."""
        return QuantumTask(
            self.id,
            self.device,
            self.session,
            self.expected_s,
            self.project,
            self.job,
            self.priority,
            self.max_wait_s,
            self.time_limit_s,
            self.set_up,
            self.places,
        )

    def restored(self, counted_from_us: Callable[[int], int]) -> QuantumTask:
        """As the queue takes it up after a restart; its limits are counted from where the broker says."""
        task = self.quantum_task()
        task.state, task.attempts, task.counted = self.state, self.attempts, self.counted
        task.queued_us = counted_from_us(self.submitted_us)
        task.since_us = counted_from_us(self.counted_us or self.executing_us or self.started_us or self.submitted_us)
        return task

    def move(self, place: Place, places: tuple[Place, ...]) -> None:
        """Wait for another device, and perhaps return to one of `places`."""
        self.device, self.expected_s = place.device, place.expected_s
        self.time_limit_s, self.set_up, self.places = place.time_limit_s, place.set_up, places

    def view(self) -> dict[str, Any]:
        """What its owners see."""
        return {
            "id": self.id,
            "name": self.name,
            "user": self.user,
            "project": self.project,
            "device": self.device,
            "session": self.session,
            "state": self.state,
            "held": self.held,
            "reason": "",
            "attempts": self.attempts,
            "expected_s": self.expected_s,
            "submitted_us": self.submitted_us,
            "started_us": self.started_us,
            "executing_us": self.executing_us,
            "ended_us": None,
            "billed_s": None,
        }


@dataclass(eq=False)
class SessionRecord:
    """A session that is asked for or open."""

    id: str
    user: str
    project: str
    device: str
    hold: QpuHold
    job: str
    requested_us: int
    key: str | None = None
    state: str = "waiting"  # or "open"
    opened_us: int | None = None
    turn_us: int = 0
    used_us: int = 0
    shared: bool = False  # all members of its project may use it, not only its owner
    idle_limit_s: float | None = None  # of a hold of the whole device, see `SessionRequested`
    hold_limit_s: float | None = None
    last_us: int = 0  # when a task of it was last there, before the broker stopped
    waiters: list[asyncio.Future[None]] = field(default_factory=list)

    def limit_hold(self, project: Project) -> None:
        """Limit how long the session may hold a whole device, as its project may."""
        if self.hold is QpuHold.WHOLE:
            self.idle_limit_s, self.hold_limit_s = project.whole_idle_s, project.whole_hold_s

    def restored(self) -> KnownSession:
        """As the queue takes it up after a restart."""
        last_us = max(self.last_us, self.turn_us)
        return KnownSession(self.requested(), self.state == "open", self.turn_us, self.opened_us or 0, last_us)

    def usable_by(self, who: Caller) -> bool:
        """Whether a caller may run tasks in it."""
        return self.user == who.user or (self.shared and self.project in who.projects)

    def requested(self) -> SessionRequested:
        """As the queue core takes it."""
        limits_s = self.idle_limit_s, self.hold_limit_s
        return SessionRequested(self.id, self.device, self.hold, self.project, self.job, *limits_s)

    def view(self) -> dict[str, Any]:
        """What its owners see."""
        return {
            "id": self.id,
            "device": self.device,
            "hold": self.hold.value,
            "user": self.user,
            "project": self.project,
            "shared": self.shared,
            "state": self.state,
            "requested_us": self.requested_us,
            "opened_us": self.opened_us,
        }


def hold_named(name: str) -> QpuHold:
    """`whole` or `share`."""
    if name not in ("whole", "share"):
        raise InputError(f"a session holds the whole device or a share, not {name!r}", hint="whole or share")
    return QpuHold(name)
