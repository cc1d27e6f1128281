"""Programs for tests on a real Slurm."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import qloom
from qloom import delay, task

FOREVER_S = 600.0  # for tasks that are ended from outside, on however slow a machine


@task(expected_s=lambda seconds, log="", end="": seconds)
def where(seconds: float, log: str = "", end: str = "") -> str:
    """Take time, at the most until a file is there, and tell on which node.

    A line in the log says that it has begun. Begun again, it is quick.
    """
    node = os.environ["SLURMD_NODENAME"]
    again = bool(log) and Path(log).exists()
    if log:
        with open(log, "a") as file:
            file.write(f"{node}\n")
    until_s = time.monotonic() + (0.0 if again else seconds)
    while (left_s := until_s - time.monotonic()) > 0 and not (end and Path(end).exists()):
        time.sleep(min(left_s, 0.05) if end else left_s)
    return node


async def fails(job: qloom.Job) -> None:
    """A phase that ends well, then an error of the program's own."""
    await job.classical(where(0.05))
    raise ValueError("on purpose")


async def long_phase(job: qloom.Job, seconds: float = FOREVER_S, log: str = "", end: str = "") -> list[Any]:
    """A short phase, a quantum task, and a phase that is long enough for something to happen in it."""
    first = await job.classical(where(0.05))
    await job.quantum(delay(0.1))
    return [len(first), len(await job.classical(where(seconds, log, end)))]


async def phases_of_each_kind(job: qloom.Job) -> int:
    """Phases with more and with fewer tasks, and quantum tasks between them."""
    for _ in range(2):
        await job.classical(where(1.2), where(1.2), where(1.2))
        await job.quantum(delay(1.3))
    return len(await job.classical(where(1.1)))


async def phases_until(job: qloom.Job, end: str, most: int = 60) -> None:
    """Phases of three tasks with quantum tasks between them, until a file is there."""
    for _ in range(most):
        await job.classical(where(1.0), where(1.0), where(1.0))
        if Path(end).exists():
            break
        await job.quantum(delay(1.0))


async def uneven(job: qloom.Job, folder: str) -> int:
    """When the quantum task is sent, two nodes work and one of those that came later is `idle`, as a file says."""
    idle, end = Path(folder, "idle"), Path(folder, "end")
    working = where(FOREVER_S, end=str(end))
    first = job.classical(working)
    second = job.classical(working, where(0.1))
    while not idle.exists():
        await asyncio.sleep(0.05)
    await job.quantum(delay(0.5))
    end.touch()
    return len(await first) + len(await second)


async def gated(job: qloom.Job, folder: str) -> int:
    """Two phases that end when the files 1 and 2 are there, a quantum task after each, and a short phase."""
    for number in (1, 2):
        await job.classical(where(FOREVER_S, end=f"{folder}/{number}"))
        await job.quantum(delay(0.1, number))
    return len(await job.classical(where(0.1)))


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


@task(ranks=2, nodes=2, expected_s=1.0)
def spread_out() -> int:
    """How many nodes the ranks are on."""
    from mpi4py import MPI

    return len(set(MPI.COMM_WORLD.gather(os.environ["SLURMD_NODENAME"]) or ()))


async def over_ranks(job: qloom.Job) -> list[Any]:
    """Classical phases over MPI ranks on two nodes."""
    first = await job.classical(spread_out())
    await job.quantum(delay(0.1))
    return first + await job.classical(spread_out())


def source(program: Any) -> str:
    """A program as users name it."""
    return f"{Path(__file__)}:{program.__name__}"
