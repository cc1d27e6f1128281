"""Bearer tokens: 32 random bytes, of which only the SHA-256 is kept, in a private file beside the store."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

from qloom.broker.records import Caller
from qloom.errors import InputError

PREFIX = "qloom_"


class Tokens:
    """The file of tokens; read again when it changes, so that a new token works at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._callers: dict[str, Caller] = {}

    def caller(self, token: str) -> Caller | None:
        """Whose token this is."""
        self._refresh()
        return self._callers.get(_digest(token))  # found by its hash: how alike two tokens are cannot be timed

    def add(self, user: str, projects: list[str], admin: bool = False) -> str:
        """Make a token for somebody; it is shown once and cannot be read again."""
        token = PREFIX + secrets.token_hex(32)
        entry = {"user": user, "projects": projects, "admin": admin, "sha256": _digest(token)}
        self._change(lambda entries: [*entries, entry])
        return token

    def revoke(self, user: str) -> int:
        """Make all tokens of somebody worthless; returns how many there were."""
        before = len(self.entries())
        self._change(lambda entries: [entry for entry in entries if entry["user"] != user])
        return before - len(self.entries())

    def entries(self) -> list[dict[str, Any]]:
        """What the file holds: no token can be made from it."""
        try:
            entries = json.loads(self.path.read_text())
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise InputError(f"the file of tokens {self.path} cannot be read: {type(error).__name__}") from None
        return list(entries)

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
        except OSError:
            self._seen, self._callers = None, {}
            return
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen != self._seen:
            self._callers = {
                entry["sha256"]: Caller(entry["user"], tuple(entry["projects"]), bool(entry["admin"]))
                for entry in self.entries()
            }
            self._seen = seen

    def _change(self, change: Any) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                text = json.dumps(change(self.entries()), indent=1)
                new = self.path.with_suffix(".new")
                new.unlink(missing_ok=True)
                with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                if os.geteuid() == 0 and self.path.parent.stat().st_uid != 0:  # root makes it, the service reads it
                    os.chown(new, self.path.parent.stat().st_uid, self.path.parent.stat().st_gid)
                new.replace(self.path)
            finally:
                os.close(lock)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}") from None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
