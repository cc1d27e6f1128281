"""What the service keeps of callers, tasks and sessions."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from qloom.broker.problems import Forbidden
from qloom.broker.queue.events import SessionRequested, Submitted
from qloom.broker.queue.lines import NOTHING, Counted
from qloom.broker.queue.state import KnownSession, KnownTask
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

    def require_admin(self) -> None:
        """Refuse who does not run the site."""
        if not self.admin:
            hint = "ask an administrator, whom [auth] admins in the broker's config names"
            raise Forbidden(f"user {self.user} does not run this broker", hint=hint)


ANY_DEVICE = "*"


@dataclass(frozen=True)
class Order:
    """A task as it is asked for."""

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
class Live:
    """A task that is not over."""

    id: str
    user: str
    project: str
    name: str
    submitted: Submitted
    submitted_us: int
    key: str | None = None
    job: str = ""  # as `submitted` says, or the Slurm job that it went on in
    state: str = "queued"
    attempts: int = 0
    started_us: int | None = None  # first handed over
    executing_us: int | None = None  # of the present attempt
    let_go_us: int | None = None  # when its device was done with it
    token: str | None = None  # of the present attempt
    device_id: str | None = None
    reattached: bool = False  # whether another run of the broker handed it over
    stop_wanted: bool = False
    over: bool = False  # that is on its way to the store
    refused: bool = False  # it could not be stored, so it was never accepted
    result: str | None = None
    error: str = ""
    billed_s: float | None = None  # by all attempts
    held: bool = False  # an administrator holds it
    wanted_again: bool = False  # once it is taken back from its device, it is queued again
    counted: Counted = NOTHING  # as it was when the broker stopped
    counted_us: int | None = None  # since when its execution counts, then
    runner: asyncio.Task[None] | None = None

    def known(self, counted_from_us: Callable[[int], int]) -> KnownTask:
        """As the queue core takes it up after a restart; its limits are counted from where the broker says."""
        since_us = self.counted_us or self.executing_us or self.started_us or self.submitted_us
        queued_us = counted_from_us(self.submitted_us)
        counted_us = counted_from_us(since_us)
        return KnownTask(self.submitted, self.state, self.attempts, queued_us, counted_us, self.counted)

    def view(self) -> dict[str, Any]:
        """What its owners see."""
        return {
            "id": self.id,
            "name": self.name,
            "user": self.user,
            "project": self.project,
            "device": self.submitted.device,
            "session": self.submitted.session,
            "state": self.state,
            "held": self.held,
            "reason": "",
            "attempts": self.attempts,
            "expected_s": self.submitted.expected_s,
            "submitted_us": self.submitted_us,
            "started_us": self.started_us,
            "executing_us": self.executing_us,
            "ended_us": None,
            "billed_s": None,
        }


ENDED_COLUMNS = (
    "id, name, user, project, device, session, state, 0 AS held, reason, attempts, expected_s, submitted_us, "
    "started_us, executing_us, ended_us, billed_s"
)


@dataclass(eq=False)
class LiveSession:
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

    def known(self) -> KnownSession:
        """As the queue core takes it up after a restart."""
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


CLOSED_COLUMNS = "id, device, hold, user, project, shared, state, requested_us, opened_us, reason"


def hold_named(name: str) -> QpuHold:
    """`whole` or `share`."""
    if name not in ("whole", "share"):
        raise InputError(f"a session holds the whole device or a share, not {name!r}", hint="whole or share")
    return QpuHold(name)
