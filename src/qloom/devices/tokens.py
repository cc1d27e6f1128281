"""Which task of a vendor belongs to which token: an append-only file, durable before and after each start.

A vendor has no idea of our tokens. So the word "starting" is on the disk before a task is handed over, and its id
right after: a token that the file does not hold was never handed over; one that is "starting" without an id may
have been, and nobody knows.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from qloom.errors import CannotTell, InputError


class TokenLog:
    """The file and what it says. One process at a time writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: dict[str, str | None] = {}
        self.over: set[str] = set()  # ids of tasks that ended: nothing is left to re-attach to
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            self._sync_folder(path.parent)
        except OSError as error:
            raise InputError(f"cannot write the token log {path}: {error.strerror}") from None
        self._read()

    def starting(self, token: str) -> None:
        """Before a task is handed over."""
        self._write({"token": token, "event": "starting"})
        self._ids.setdefault(token, None)

    def started(self, token: str, id: str) -> None:
        """As soon as its id is known."""
        self._write({"token": token, "event": "started", "id": id})
        self._ids[token] = id

    def not_started(self, token: str) -> None:
        """The vendor said that it did not take the task: it may be handed over again."""
        self._write({"token": token, "event": "not_started"})
        self._ids.pop(token, None)

    def ended(self, id: str) -> None:
        """The task is over. Only a help for later: not synced."""
        if id not in self.over:
            self.over.add(id)
            self._write({"id": id, "event": "ended"}, sync=False)

    def find(self, token: str) -> str | None:
        """The id; None if this token was never handed over; raises `CannotTell`."""
        if token not in self._ids:
            return None
        id = self._ids[token]
        if id is None:
            raise CannotTell(
                f"task {token} was being handed over when the connection broke",
                hint="look for it in the vendor's own list: it may run there",
            )
        return id

    def known(self) -> list[str]:
        """All ids, the oldest first."""
        return [id for id in self._ids.values() if id is not None]

    def close(self) -> None:
        """Let go of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read(self) -> None:
        text = self._path.read_bytes()
        whole, _, torn = text.rpartition(b"\n")
        if torn:  # a line that a crash cut short was never relied on: nothing had been handed over yet
            os.ftruncate(self._file, len(text) - len(torn))
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = json.loads(line)
                match entry["event"]:
                    case "starting":
                        self._ids.setdefault(entry["token"], None)
                    case "started":
                        self._ids[entry["token"]] = entry["id"]
                    case "not_started":
                        self._ids.pop(entry["token"], None)
                    case "ended":
                        self.over.add(entry["id"])
            except (ValueError, KeyError, TypeError):
                raise InputError(
                    f"the token log {self._path} is damaged in line {number}", hint="restore it from a copy"
                ) from None

    def _write(self, entry: dict[str, str], *, sync: bool = True) -> None:
        line = json.dumps(entry).encode() + b"\n"
        try:
            written = os.write(self._file, line)
            if sync:
                os.fsync(self._file)
        except OSError as error:
            raise InputError(f"cannot write the token log {self._path}: {error.strerror}") from None
        if written != len(line):
            raise InputError(f"cannot write the token log {self._path}: the disk is full")

    @staticmethod
    def _sync_folder(folder: Path) -> None:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
