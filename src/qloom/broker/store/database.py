"""The broker's SQLite file, on a local disk: every reply is sent only after its state change is on disk.

Writes are staged and committed together, once per turn of the event loop: many submissions share one fsync, and
each answer waits for the commit that holds it. If the disk is full, what is new is refused, and what was accepted
before stays staged until it fits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from qloom.broker.problems import StoreFull
from qloom.broker.store.schema import open_database

LOG = logging.getLogger("qloom.broker")
RETRY_S = 1.0

Then = Callable[[StoreFull | None], None]


class Database:
    """Reads see what is committed; writes are staged, and `durable` waits for them."""

    def __init__(self, path: str | Path, max_pages: int | None = None, *, make: bool = True) -> None:
        self.path = str(path)
        self.on_commit: Callable[[float], None] = lambda seconds: None  # called with the seconds of each commit
        self._writes: list[tuple[str, str, tuple[Any, ...]]] = []  # group, statement, values
        self._thens: list[tuple[str, Then]] = []
        self._new: dict[str, None] = {}  # groups that may be refused
        self._flush_planned = False
        self._failing = False
        self._refusing = False  # the last commit failed, if only for what was new
        self._db = open_database(self.path, make=make)
        self._files = self._find_files()
        if max_pages is not None:
            self._db.execute(f"PRAGMA max_page_count = {int(max_pages)}")

    # Writing

    def stage(self, sql: str, *values: Any, group: str = "") -> None:
        """Have something written with the next commit; `group` is the task or session that it is about."""
        self._writes.append((group, sql, values))
        self._plan_flush()

    def stage_new(self, group: str) -> None:
        """All of this group that is not committed yet may be refused, if there is no room for it."""
        self._new[group] = None

    def then(self, then: Then, group: str = "") -> None:
        """Call `then` once all that is staged now is durable, or with an error if its group was refused."""
        self._thens.append((group, then))
        self._plan_flush()

    def durable(self, group: str = "") -> asyncio.Future[None]:
        """Wait until all that is staged now is durable; raises `StoreFull` if `group` was refused."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: StoreFull | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.then(settle, group)
        return done

    def _plan_flush(self) -> None:
        if not self._flush_planned and not self._failing:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Commit what is staged, now."""
        self._flush_planned = False
        writes, thens, new = self._writes, self._thens, self._new
        self._writes, self._thens, self._new = [], [], {}
        try:
            self._commit(writes)
        except sqlite3.Error as error:
            self._refusing = True
            self._commit_without(new, writes, thens, error)
            return
        self._refusing = self._refusing and not writes
        self._recovered()
        for _group, then in thens:
            then(None)

    def _commit_without(
        self,
        new: dict[str, None],
        writes: list[tuple[str, str, tuple[Any, ...]]],
        thens: list[tuple[str, Then]],
        error: sqlite3.Error,
    ) -> None:
        """Refuse what is new, and write the rest; if even that has no room, it stays staged."""
        kept = [write for write in writes if write[0] not in new]
        waiting = [(group, then) for group, then in thens if group not in new]
        try:
            if kept and new:
                self._commit(kept)
            elif kept:
                raise error
        except sqlite3.Error as still:
            if not self._failing:
                LOG.error("the store %s cannot be written (%s): trying again", self.path, still)
            self._failing = True
            self._writes, self._thens = kept + self._writes, waiting + self._thens
            asyncio.get_running_loop().call_later(RETRY_S, self.flush)
            waiting = []
        refusal = StoreFull(
            f"the broker cannot store this: {error}", hint="nothing was accepted; try again when there is room"
        )
        for _group, then in waiting:
            then(None)
        for group, then in thens:
            if group in new:
                then(refusal)

    def _recovered(self) -> None:
        if self._failing:
            LOG.warning("the store %s can be written again", self.path)
            self._failing = False

    def _commit(self, writes: list[tuple[str, str, tuple[Any, ...]]]) -> None:
        if not writes:
            return
        began = time.perf_counter()
        try:
            self._require_files()
            self._db.execute("BEGIN IMMEDIATE")
            for _group, sql, values in writes:
                self._db.execute(sql, values)
            self._db.execute("COMMIT")
        except sqlite3.Error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self.on_commit(time.perf_counter() - began)

    # The files

    @property
    def writable(self) -> bool:
        """Whether the last commit succeeded, and the files are still there."""
        return not (self._refusing or self._failing) and self._find_files() == self._files

    def _require_files(self) -> None:
        """Raise if the files are gone: SQLite would go on writing to them, and all of it would be lost."""
        if self._find_files() != self._files:
            raise sqlite3.OperationalError("its file was removed or replaced")

    def _find_files(self) -> list[tuple[int, int]]:
        if self.path == ":memory:":
            return []
        try:
            return [((found := os.stat(f"{self.path}{end}")).st_dev, found.st_ino) for end in ("", "-wal")]
        except OSError:
            return []

    # Reading

    def rows(self, sql: str, *values: Any) -> Iterator[sqlite3.Row]:
        """What is committed."""
        return iter(self._db.execute(sql, values))

    def row(self, sql: str, *values: Any) -> sqlite3.Row | None:
        """The first row of it."""
        found: sqlite3.Row | None = self._db.execute(sql, values).fetchone()
        return found

    def get(self, key: str, default: str) -> str:
        """A value that there is one of."""
        found = self.row("SELECT value FROM meta WHERE key = ?", key)
        return str(found[0]) if found is not None else default

    def put(self, key: str, value: str) -> None:
        """Stage such a value."""
        self.stage(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, value
        )

    def close(self) -> None:
        """Commit what is staged and let go of the file."""
        if self._writes:
            try:
                self._commit(self._writes)
            except sqlite3.Error as error:
                LOG.error("the store %s could not be written at the end: %s", self.path, error)
        self._writes = []
        self._db.close()
