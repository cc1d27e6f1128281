"""How and when jobs of Slurm end: by the exit of the `salloc` that holds them, by themselves, or cancelled.

It knows jobs and components of het jobs by their ids, not what they were for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from qloom.aio import TaskScope
from qloom.slurm.client import Client
from qloom.slurm.salloc import Salloc
from qloom.slurm.squeue import QueuedJob

ENDING_S = 10.0  # how long Slurm may take to say how a job has ended
LOOK_S = 0.1
MOMENT_S = 2.0  # for a salloc to end its allocation before the controller is asked


async def complete(client: Client, ids: Sequence[str], sallocs: Sequence[Salloc]) -> int | None:
    """End jobs by the exit of the `salloc` that holds each; returns the second of the last end."""
    scope = TaskScope()
    ending = {scope.start(salloc.complete()) for salloc in sallocs}
    try:
        while ending:
            _, ending = await asyncio.wait(ending, timeout=MOMENT_S)
            jobs = await _find(client, ids)  # waits for a controller that does not answer, and records that
            if _have_ended(jobs):
                await asyncio.gather(*ending)
                return _last_end_s(jobs)
    finally:
        await scope.aclose()
    return await finish(client, ids)  # a salloc that has lost one component of a het job leaves the others


async def finish(client: Client, ids: Sequence[str]) -> int | None:
    """End jobs, or components of het jobs, that no salloc can end: by themselves if possible, else by `scancel`."""
    await client.complete(*ids)
    jobs = await _find(client, ids)
    return _last_end_s(jobs) if _have_ended(jobs) else await cancel(client, ids)


async def cancel(client: Client, ids: Sequence[str]) -> int | None:
    """Cancel jobs, or components of het jobs, until they have ended; returns the second of the last end."""
    while True:
        await client.cancel(*ids)
        jobs = await _find(client, ids)
        if _have_ended(jobs):
            return _last_end_s(jobs)
        await asyncio.sleep(LOOK_S)


async def wait_past_completing(client: Client, id: str) -> QueuedJob | None:
    """A job or component once it is past COMPLETING, which hides how it ended; None if Slurm has forgotten it."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + ENDING_S
    while True:
        jobs = [job for job in await client.jobs(id.partition("+")[0]) if job.id == id]
        if not jobs or jobs[0].state.name != "COMPLETING" or loop.time() > until_s:
            return jobs[0] if jobs else None
        await asyncio.sleep(LOOK_S)


def how_it_ended(job: QueuedJob | None) -> str:
    """How a job ended, in plain words that follow its name."""
    return "is not known to Slurm any more" if job is None else job.state.words


async def _find(client: Client, ids: Sequence[str]) -> list[QueuedJob]:
    found = await client.jobs(*(id.partition("+")[0] for id in ids))
    return [job for job in found if job.id in ids or ("+" in job.id and job.leader in ids)]


def _have_ended(jobs: Sequence[QueuedJob]) -> bool:
    return all(job.state.stage == "ended" for job in jobs)


def _last_end_s(jobs: Sequence[QueuedJob]) -> int | None:
    return max((job.end_s for job in jobs if job.end_s is not None), default=None)
