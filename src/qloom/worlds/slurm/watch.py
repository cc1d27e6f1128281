"""One look at the queue for all jobs of a run, now and then: why requests wait, and what came back from the dead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from qloom.errors import QloomError
from qloom.journal.event import Event
from qloom.journal.events import LookFailed, StillWaits
from qloom.ports import Request
from qloom.slurm.client import Client
from qloom.slurm.squeue import QueuedJob
from qloom.slurm.states import most_telling, reason_in_words
from qloom.worlds.slurm.parts import Part


class Asked(Protocol):
    """A request in Slurm's queue."""

    name: str


class Watch:
    """Looks every `poll_s` while something is asked for or held. Grants are not found here: Slurm announces them."""

    def __init__(
        self,
        client: Client,
        poll_s: float,
        asking: Mapping[str, tuple[Request, Asked]],
        held: Mapping[str, list[Part]],
        note: Callable[[str, Event], None],
        qpu_is_away: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._client = client
        self._poll_s = poll_s
        self._qpu_is_away = qpu_is_away
        self._asking = asking
        self._held = held
        self._note = note
        self._names: dict[str, bool] = {}  # of all jobs that this driver has asked for
        self._looking = asyncio.ensure_future(self._look())

    def note(self, name: str) -> None:
        """A job of this name is asked for."""
        self._names[name] = True

    async def close(self) -> None:
        """Look no more."""
        self._looking.cancel()
        await asyncio.wait([self._looking])

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            if not self._asking and not self._held:
                continue
            try:
                await self._look_once()
            except QloomError as error:  # the next look may be luckier
                self._note("watch", LookFailed(complaint=error.message))

    async def _look_once(self) -> None:
        rows = await self._client.jobs()
        for request, asked in list(self._asking.values()):
            waiting = [row for row in rows if row.name == asked.name and row.state.stage == "waits"]
            if waiting and request.eligible:
                await self._note_wait(request, waiting)
        ends_s = {row.id: row.end_s for row in rows}
        for part in [part for parts in self._held.values() for part in parts]:
            part.end_s = ends_s.get(part.classical, part.end_s)  # a time limit can be changed
        await self._release(rows)

    async def _note_wait(self, request: Request, waiting: list[QueuedJob]) -> None:
        short = waiting[most_telling([row.reason for row in waiting])]
        reason, for_qpu = short.reason, short.id.endswith("+1")
        if request.device is not None and self._qpu_is_away and reason == "Resources" and await self._qpu_is_away():
            reason, for_qpu = "ReqNodeNotAvail", True  # Slurm does not always tell it from a QPU that others hold
        if request.device is not None and request.least_nodes:
            request.waited_for = request.device if for_qpu else "nodes"
        lease = (request.lease or request).id
        waits = StillWaits(job=request.job, lease=lease, engine_id=short.leader, reason=reason_in_words(reason))
        self._note(request.id, waits)

    async def release_strays(self) -> None:
        """A controller that was killed may bring back jobs that were cancelled just before: cancel them again."""
        if self._client.was_silent:
            await self._release(await self._client.jobs())

    async def _release(self, rows: list[QueuedJob]) -> None:
        known = [part.id for parts in self._held.values() for part in parts]
        asked_for = [asked.name for _, asked in self._asking.values()]
        ours = [row for row in rows if row.name in self._names and row.state.stage != "ended"]
        strays = [row.leader for row in ours if row.leader not in known and row.name not in asked_for]
        if strays:
            await self._client.cancel(*dict.fromkeys(strays))
