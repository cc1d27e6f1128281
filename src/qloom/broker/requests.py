"""Who asks the service, and what for: a caller, and a task as submitted by a client."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from qloom.broker.problems import Forbidden
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
    note: str = ""  # what the door that it came through keeps with it, as JSON

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
        for name in ("devices", "note"):
            if not whole[name]:
                del whole[name]  # keys of brokers that knew nothing of it go on to hold
        return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()


def stored_payload(payload: Payload) -> str:
    """As the store keeps it: a line for the head, and behind it the body."""
    return f"{json.dumps(head_of(payload), allow_nan=False)}\n{payload.text}"


def read_payload(text: str) -> Payload:
    """As it was; the body stays unread. Before there were heads, a payload was one line."""
    head, line_break, body = text.partition("\n")
    return payload_under(json.loads(head), body) if line_break else Payload(**json.loads(text))


def hold_named(name: str) -> QpuHold:
    """`whole` or `share`."""
    if name not in ("whole", "share"):
        raise InputError(f"a session holds the whole device or a share, not {name!r}", hint="whole or share")
    return QpuHold(name)
