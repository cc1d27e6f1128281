"""What the service keeps of callers, tasks and sessions."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from qloom.broker.devices.base import Envelope
from qloom.broker.events import Submitted
from qloom.broker.problems import Forbidden
from qloom.errors import InputError
from qloom.model import QpuHold


@dataclass(frozen=True)
class Caller:
    """Who asks, for which projects they may, and whether they run the site."""

    user: str
    projects: tuple[str, ...] = ("default",)
    admin: bool = False

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
            raise Forbidden(f"user {self.user} does not run this broker", hint="ask an administrator")


@dataclass(frozen=True)
class Order:
    """A task as it is asked for."""

    envelope: Envelope
    device: str | None = None
    project: str | None = None
    session: str | None = None
    job: str | None = None
    name: str = "quantum"
    priority: int = 0
    max_wait_s: float | None = None
    time_limit_s: float | None = None
    key: str | None = None  # the same key never makes a second task

    def digest(self) -> str:
        """What a key stands for."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True, default=str).encode()).hexdigest()


def envelope_text(envelope: Envelope) -> str:
    """As the store keeps it."""
    return json.dumps(asdict(envelope), allow_nan=False)


def envelope_from(text: str) -> Envelope:
    """As it was."""
    return Envelope(**json.loads(text))


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
    state: str = "queued"
    attempts: int = 0
    started_us: int | None = None  # first handed over
    executing_us: int | None = None  # of the present attempt
    token: str | None = None  # of the present attempt
    device_id: str | None = None
    reattached: bool = False  # whether another run of the broker handed it over
    stop_wanted: bool = False
    over: bool = False  # that is on its way to the store
    refused: bool = False  # it could not be stored, so it was never accepted
    result: str | None = None
    error: str = ""
    billed_s: float | None = None
    runner: asyncio.Task[None] | None = None

    def view(self) -> dict[str, Any]:
        """What its owners see."""
        return {
            "id": self.id,
            "name": self.name,
            "project": self.project,
            "device": self.submitted.device,
            "session": self.submitted.session,
            "state": self.state,
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
    "id, name, project, device, session, state, reason, attempts, expected_s, submitted_us, started_us, "
    "executing_us, ended_us, billed_s"
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
    waiters: list[asyncio.Future[None]] = field(default_factory=list)

    def view(self) -> dict[str, Any]:
        """What its owners see."""
        return {
            "id": self.id,
            "device": self.device,
            "hold": self.hold.value,
            "project": self.project,
            "state": self.state,
            "requested_us": self.requested_us,
            "opened_us": self.opened_us,
        }


def hold_named(name: str) -> QpuHold:
    """`whole` or `share`."""
    if name not in ("whole", "share"):
        raise InputError(f"a session holds the whole device or a share, not {name!r}", hint="whole or share")
    return QpuHold(name)
