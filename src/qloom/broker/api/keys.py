"""Idempotency keys: the same key of a user in a project never makes a second task or session."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from qloom.broker.problems import StoreFull
from qloom.broker.store.task_store import TaskStore


@dataclass(frozen=True)
class IdempotencyKey:
    """A key as it is kept: it belongs to a user and a project."""

    table: str  # tasks or sessions
    user: str
    project: str
    key: str


class KeyRing:
    """Which task or session was made with a key, also before that is durable."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store
        self._pending: dict[IdempotencyKey, str] = {}

    async def made_with(self, key: IdempotencyKey | None) -> str | None:
        """The id of what was made with a key, once that is settled: stored, or refused."""
        if key is None:
            return None
        id = self._pending.get(key) or self._store.made_with_key(key.table, key.user, key.project, key.key)
        if id is not None:
            await self._store.durable(id)
        return id

    async def accept(self, id: str, key: IdempotencyKey | None) -> None:
        """Wait until something new is durable; raises `StoreFull` if it cannot be."""
        if key is not None:
            self._pending[key] = id
        try:
            # The answer may no longer be wanted, but what was staged will be committed all the same.
            await asyncio.shield(self._store.durable(id))
        finally:
            if key is not None:
                self._pending.pop(key, None)


def not_stored() -> StoreFull:
    """For whoever asks again for what could not be stored."""
    return StoreFull("the broker cannot store this", hint="nothing was accepted; try again when there is room")
