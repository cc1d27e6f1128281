"""Bearer tokens: 32 random bytes, of which only the SHA-256 is kept, in a private file beside the store.

A token has a user, projects, a scope and an end. It is known by its id, the first digits of its hash, which is no
secret. The file is read again when it changes, so that a new or revoked token counts at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from qloom.broker.requests import Caller
from qloom.errors import InputError, NotPrivate
from qloom.private import PrivateDirectory

PREFIX = "qloom_"
ID_DIGITS = 12
USED = "used"  # the suffix of the file of days: the service alone writes it
Scope = Literal["read", "submit", "admin"]  # each may do what the one before may
SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True)
class TokenEntry:
    """What is kept of a token. No token can be made from it."""

    user: str
    projects: tuple[str, ...]
    scope: Scope
    sha256: str
    created_s: float | None = None  # since 1970; None: made by a version that did not keep it
    expires_s: float | None = None  # None: never

    @property
    def id(self) -> str:
        return self.sha256[:ID_DIGITS]

    def is_over(self) -> bool:
        """Whether it has expired."""
        return self.expires_s is not None and time.time() >= self.expires_s

    def caller(self) -> Caller:
        """Return the caller that this token belongs to."""
        return Caller(
            self.user, self.projects, self.scope == "admin", read_only=self.scope == "read", token=self.sha256
        )


class TokenFile:
    """The file of tokens; it belongs to whoever `store` belongs to, or else the directory."""

    def __init__(self, path: Path, store: Path | None = None) -> None:
        self.path = path
        self._store = store
        self._seen: tuple[int, int, int] | None = None
        self._entries: dict[str, TokenEntry] = {}
        self._used: dict[str, str] | None = None  # id -> day

    # The service

    def caller(self, token: str) -> Caller | None:
        """Whose token this is; None if there is no such token, or no longer."""
        found = self.current(_digest(token))  # found by its hash: how alike two tokens are cannot be timed
        if found is not None:
            self._note_use(self._entries[found.token or ""].id)
        return found

    def current(self, sha256: str) -> Caller | None:
        """Who has the token of this hash by now; None if it was revoked or has expired."""
        self._refresh()
        entry = self._entries.get(sha256)
        return None if entry is None or entry.is_over() else entry.caller()

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
        except OSError:
            self._seen, self._entries = None, {}
            return
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen != self._seen:
            self._entries = {entry.sha256: entry for entry in self.entries()}
            self._seen = seen

    def _note_use(self, id: str) -> None:
        """Keep the day on which a token was used last: one small write per token and day."""
        today = time.strftime("%Y-%m-%d", time.gmtime())
        used = self.used_days() if self._used is None else self._used
        self._used = used
        if used.get(id) == today:
            return
        known = {entry.id: None for entry in self._entries.values()}
        self._used = {**{one: day for one, day in used.items() if one in known}, id: today}
        with contextlib.suppress(OSError, NotPrivate), PrivateDirectory.open(self.path.parent) as directory:
            directory.write(f"{self.path.name}.{USED}", json.dumps(self._used).encode())

    # Whoever looks after it

    def add(self, user: str, projects: list[str], scope: Scope = "submit", life_s: float | None = None) -> str:
        """Make a token for somebody; it is shown once and cannot be read again. Without `life_s`, it never ends."""
        token, now_s = PREFIX + secrets.token_hex(32), time.time()
        expires_s = None if life_s is None else now_s + life_s
        entry = TokenEntry(user, tuple(projects), scope, _digest(token), now_s, expires_s)
        self._change(lambda entries: [*entries, entry])
        return token

    def revoke(self, user: str) -> int:
        """Make all tokens of somebody worthless; returns how many there were."""
        return self._remove(lambda entry: entry.user == user)

    def revoke_one(self, id: str) -> None:
        """Make one token worthless."""
        if not self._remove(lambda entry: entry.id == id):
            raise InputError(f"no token has the id {id!r}", hint="qloom broker tokens lists them")

    def entries(self) -> list[TokenEntry]:
        """What the file holds, expired tokens too."""
        try:
            with self._directory() as directory:
                return _read(directory, self.path.name)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"the tokens in {self.path} cannot be read: {error.strerror}") from None

    def used_days(self) -> dict[str, str]:
        """The day on which each token was used last, by id."""
        try:
            with self._directory() as directory:
                days = json.loads(directory.read(f"{self.path.name}.{USED}"))
        except (OSError, ValueError, NotPrivate):
            return {}
        return days if isinstance(days, dict) else {}

    def _remove(self, unwanted: Callable[[TokenEntry], bool]) -> int:
        removed: list[TokenEntry] = []

        def change(entries: list[TokenEntry]) -> list[TokenEntry]:
            removed.extend(entry for entry in entries if unwanted(entry))
            return [entry for entry in entries if not unwanted(entry)]

        self._change(change)
        return len(removed)

    def _change(self, change: Callable[[list[TokenEntry]], list[TokenEntry]]) -> None:
        try:
            _make_directory(self.path.parent)
            owner = self._service()
            with self._directory() as directory, _locked(directory, f".{self.path.name}.lock", owner):
                try:
                    entries = _read(directory, self.path.name)
                except FileNotFoundError:
                    entries = []
                text = json.dumps([asdict(entry) for entry in change(entries)], indent=1)
                directory.write(self.path.name, text.encode(), owner=owner)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}") from None

    def _directory(self) -> PrivateDirectory:
        service = self._service()
        return PrivateDirectory.open(self.path.parent, on_behalf_of=None if service is None else service[0])

    def _service(self) -> tuple[int, int] | None:
        """For root, user and group of the service: root may make the first token, and the service makes the next."""
        if os.geteuid() != 0:
            return None
        store = self._store
        found = (store if store is not None and store.exists() else self.path.parent).stat()
        return found.st_uid, found.st_gid


def _read(directory: PrivateDirectory, name: str) -> list[TokenEntry]:
    try:
        return [_entry(**values) for values in json.loads(directory.read(name))]
    except (ValueError, TypeError) as error:
        raise InputError(f"the tokens in {directory.path / name} cannot be read: {type(error).__name__}") from None


def _entry(*, admin: bool = False, scope: str | None = None, projects: list[str], **values: Any) -> TokenEntry:
    """`admin` is what there was before there were scopes."""
    given = scope_named(scope or ("admin" if admin else "submit"))
    return TokenEntry(projects=tuple(projects), scope=given, **values)


def _make_directory(path: Path) -> None:
    """Make a directory and those above it, for whom the first one that is there belongs to."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        above = one.parent.stat()
        one.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0 and above.st_uid != 0:
            os.chown(one, above.st_uid, above.st_gid, follow_symlinks=False)


@contextlib.contextmanager
def _locked(directory: PrivateDirectory, name: str, owner: tuple[int, int] | None) -> Iterator[None]:
    lock = directory.open_file(name, os.O_RDWR | os.O_CREAT)
    try:
        if owner is not None:
            os.fchown(lock, *owner)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def scope_named(name: str) -> Scope:
    """`read`, `submit` or `admin`."""
    for scope in SCOPES:
        if scope == name:
            return scope
    raise InputError(f"no scope is called {name!r}", hint=f"choose one of {', '.join(SCOPES)}")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
