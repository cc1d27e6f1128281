"""How and when a Slurm job ended: by us, or taken away from us."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from qloom.errors import AllocationEnded
from qloom.ports import Clock
from qloom.slurm.client import Client
from qloom.slurm.squeue import QueuedJob
from qloom.worlds.slurm.parts import Part

ENDING_S = 10.0  # how long Slurm may take to say how a job has ended
LOOK_S = 0.1
MOMENT_S = 2.0  # that a salloc is given to end its allocation before the controller is asked
RESUME = "what is done is kept: qloom resume"


async def complete(client: Client, parts: Sequence[Part]) -> int | None:
    """Let jobs end by the exit of what holds them, and see that they have; the second of the last end."""
    ids = [part.id for part in parts]
    holds = [part.hold for part in parts if part.hold is not None]
    ending = {asyncio.ensure_future(hold.complete()) for hold in holds}
    while ending:
        _, ending = await asyncio.wait(ending, timeout=MOMENT_S)
        rows = await _rows(client, ids)  # it waits for a controller that does not answer, and says so
        if _have_ended(rows):
            await asyncio.gather(*ending)
            return _last_end_s(rows)
    return await finish(client, ids)  # a salloc that has lost one component of a het job leaves the others


async def finish(client: Client, ids: Sequence[str]) -> int | None:
    """End jobs, or components of het jobs, that no salloc can end: by themselves if possible, else by `scancel`."""
    await client.complete(*ids)
    rows = await _rows(client, ids)
    return _last_end_s(rows) if _have_ended(rows) else await cancel(client, ids)


async def cancel(client: Client, ids: Sequence[str]) -> int | None:
    """Cancel jobs, or components of het jobs, and see that they have ended; the second of the last end."""
    while True:
        await client.cancel(*ids)
        rows = await _rows(client, ids)
        if _have_ended(rows):
            return _last_end_s(rows)
        await asyncio.sleep(LOOK_S)


async def _rows(client: Client, ids: Sequence[str]) -> list[QueuedJob]:
    return [row for row in await client.jobs(*(id.partition("+")[0] for id in ids)) if _is_one(row, ids)]


def _have_ended(rows: Sequence[QueuedJob]) -> bool:
    return all(row.state.stage == "ended" for row in rows)


def _last_end_s(rows: Sequence[QueuedJob]) -> int | None:
    return max((row.end_s for row in rows if row.end_s is not None), default=None)


async def settled(client: Client, part: Part) -> QueuedJob | None:
    """A job as Slurm sees it once it is past COMPLETING, which hides how it ended."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + ENDING_S
    while True:
        rows = [row for row in await client.jobs(part.id) if row.id == part.classical]
        if not rows or rows[0].state.name != "COMPLETING" or loop.time() > until_s:
            return rows[0] if rows else None
        await asyncio.sleep(LOOK_S)


def engine_us(clock: Clock, observed_us: int, second: int | None) -> int | None:
    """Slurm knows whole seconds: what was observed, moved into the second that Slurm names."""
    if second is None:
        return None
    begin_us = _begin_us(clock, second)
    return min(max(observed_us, begin_us), begin_us + 999_999)


def unobserved_us(clock: Clock, second: int | None) -> int | None:
    """The same for what was not observed: the middle of the second that Slurm names."""
    return None if second is None else _begin_us(clock, second) + 500_000


def _begin_us(clock: Clock, second: int) -> int:
    return second * 1_000_000 - (time.time_ns() // 1000 - clock.now_us())


def how_it_ended(row: QueuedJob | None) -> str:
    """In plain words."""
    return "is not known to Slurm any more" if row is None else row.state.words


def taken_away(part: Part, row: QueuedJob | None, job: str | None) -> AllocationEnded:
    """The error of a job whose allocation Slurm has ended: what happened, and what to do."""
    advice = f"{row.state.what_to_do}; {RESUME}" if row is not None and row.state.what_to_do else RESUME
    return AllocationEnded(f"Slurm job {part.id} {how_it_ended(row)}", job=job, hint=advice)


def _is_one(row: QueuedJob, ids: Sequence[str]) -> bool:
    return row.id in ids or ("+" in row.id and row.leader in ids)
