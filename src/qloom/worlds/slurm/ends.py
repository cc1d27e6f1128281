"""How and when a Slurm job ended: by us, or taken away from us."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from qloom.errors import AllocationEnded
from qloom.ports import Clock
from qloom.worlds.slurm.client import Client
from qloom.worlds.slurm.parts import Part
from qloom.worlds.slurm.rows import Row

ENDING_S = 10.0  # how long Slurm may take to say how a job has ended
LOOK_S = 0.1
RESUME = "what is done is kept: qloom resume"


async def cancel(client: Client, ids: Sequence[str]) -> int | None:
    """Cancel jobs, or components of het jobs, and see that they have ended; the second of the last end."""
    while True:
        await client.cancel(*ids)
        rows = [row for row in await client.jobs(*(id.partition("+")[0] for id in ids)) if _is_one(row, ids)]
        if all(row.state.stage == "ended" for row in rows):
            return max((row.end_s for row in rows if row.end_s is not None), default=None)
        await asyncio.sleep(LOOK_S)


async def settled(client: Client, part: Part) -> Row | None:
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


def how_it_ended(row: Row | None) -> str:
    """In plain words."""
    return "is not known to Slurm any more" if row is None else row.state.words


def taken_away(part: Part, row: Row | None, job: str | None) -> AllocationEnded:
    """The error of a job whose allocation Slurm has ended: what happened, and what to do."""
    advice = f"{row.state.what_to_do}; {RESUME}" if row is not None and row.state.what_to_do else RESUME
    return AllocationEnded(f"Slurm job {part.id} {how_it_ended(row)}", job=job, hint=advice)


def _is_one(row: Row, ids: Sequence[str]) -> bool:
    return row.id in ids or ("+" in row.id and row.whole in ids)
