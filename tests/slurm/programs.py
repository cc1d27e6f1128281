"""Programs for tests on a real Slurm."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import qloom
from qloom import delay, task


@task(expected_s=lambda seconds, log="": seconds)
def where(seconds: float, log: str = "") -> str:
    """Take time, and tell on which node; a line in a file says when it has begun. Begun again, it is quick."""
    node = os.environ["SLURMD_NODENAME"]
    again = bool(log) and Path(log).exists()
    if log:
        with open(log, "a") as file:
            file.write(f"{node}\n")
    time.sleep(0.0 if again else seconds)
    return node


async def long_phase(job: qloom.Job, seconds: float = 3.0, log: str = "") -> list[Any]:
    """A short phase, a quantum task, and a phase that is long enough for something to happen in it."""
    first = await job.classical(where(0.05))
    await job.quantum(delay(0.1))
    return [len(first), len(await job.classical(where(seconds, log)))]


async def phases_of_each_kind(job: qloom.Job) -> int:
    """Phases with more and with fewer tasks, and quantum tasks between them."""
    for _ in range(2):
        await job.classical(where(1.2), where(1.2), where(1.2))
        await job.quantum(delay(1.3))
    return len(await job.classical(where(1.1)))


async def uneven(job: qloom.Job) -> int:
    """When the quantum task is sent, two nodes work and one of those that came later is idle."""
    first = job.classical(where(5.0))
    second = job.classical(where(5.1), where(0.1))
    await asyncio.sleep(2.5)
    await job.quantum(delay(0.5))
    return len(await first) + len(await second)


async def three_phases(job: qloom.Job, seconds: float = 1.5) -> int:
    """Phases that last long enough for a driver to be killed in each of them."""
    first = await job.classical(where(seconds), where(seconds + 0.1))
    await job.quantum(delay(seconds))
    return len(first + await job.classical(where(seconds + 0.2)))


async def two_quantum(job: qloom.Job) -> int:
    """A QPU is asked for twice."""
    for number in range(2):
        await job.classical(where(0.05 + number / 100))
        await job.quantum(delay(0.2, number))
    return 2


def source(program: Any) -> str:
    """A program as users name it."""
    return f"{Path(__file__)}:{program.__name__}"
