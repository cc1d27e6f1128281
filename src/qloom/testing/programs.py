"""The programs of the contracts. Times are short, and no two events of a program coincide.

Every worker imports this file, so it imports little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import qloom
from qloom import delay, task
from qloom.errors import QuantumFailed
from qloom.model import JsonText

ContractProgram = Callable[..., Coroutine[Any, Any, Any]]

SQUARE_QUBO = {("a", "a"): -1.0, ("b", "b"): -0.8, ("a", "b"): 2.5, ("c", "c"): -0.5}  # one ground state


def _square(x: int, seconds: float = 0.05, log: str = "") -> int:
    return x * x


@task(expected_s=lambda x, seconds=0.05, log="": seconds, stand_in=_square)
def square(x: int, seconds: float = 0.05, log: str = "") -> int:
    """Takes time, and leaves a mark in a file each time it really runs."""
    if log:
        with open(log, "a") as file:
            file.write(f"{x}\n")
    time.sleep(seconds)
    return x * x


@task(expected_s=0.01)
def total(values: Any) -> float:
    return float(sum(values))


@task(expected_s=0.01)
def fails(message: str) -> None:
    raise ValueError(message)


async def loop(job: qloom.Job, log: str = "") -> list[Any]:
    """The shape of the papers' application."""
    seen = []
    for iteration in range(3):
        parts = await job.classical(*(square(10 * iteration + part, 0.03 + part / 100, log) for part in range(3)))
        sample = await job.quantum(SQUARE_QUBO, shots=20, expected_s=0.04)
        (score,) = await job.classical(square(sum(parts) % 7, 0.02, log))
        seen.append([parts, dict(sorted(sample.values.items())), sample.energy, score])
    return seen


async def overlap(job: qloom.Job, log: str = "") -> list[Any]:
    """Required classical work goes on while a quantum task is out."""
    answer = job.quantum(SQUARE_QUBO, shots=20, expected_s=0.15)
    first = await job.classical(square(1, 0.03, log), square(2, 0.05, log))
    second = await job.classical(square(3, 0.02, log))
    sample = await answer
    return [first, second, sample.energy]


async def three_at_once(job: qloom.Job, log: str = "") -> list[Any]:
    """Three quantum tasks out at once, of different content."""
    import asyncio  # not in every worker: it takes longer than all the rest

    problems = [{("x", "x"): bias} for bias in (-1.0, 2.0, -3.0)]
    samples = await asyncio.gather(*(job.quantum(problem, shots=5, expected_s=0.03) for problem in problems))
    (added,) = await job.classical(total([sample.energy for sample in samples]))
    return [sample.energy for sample in samples] + [added]


async def block_of_five(job: qloom.Job, log: str = "") -> list[Any]:
    """One hold of the QPU over five tasks, with classical work in between."""
    energies = []
    async with job.quantum_block():
        for number in range(5):
            sample = await job.quantum({("x", "x"): -1.0 - number}, shots=5, expected_s=0.02)
            energies.append(sample.energy)
            if number == 2:
                energies += await job.classical(square(number, 0.02, log))
    return energies


async def candidate(job: qloom.Job, log: str = "") -> list[Any]:
    """A quantum candidate; with the device down, the classical implementation runs."""
    chosen = await job.quantum(delay(0.05), or_classical=square(6, 0.04, log))
    (after,) = await job.classical(square(2, 0.02, log))
    return [chosen, after]


async def speculation(job: qloom.Job, log: str = "") -> list[Any]:
    """The next iteration's tasks are offered while the quantum task is out; half of them are never needed."""
    seen = []
    for iteration in range(3):
        parts = await job.classical(square(iteration, 0.03, log), square(iteration + 50, 0.05, log))
        job.speculate(square(iteration + 1, 0.03, log), square(iteration + 900, 0.04, log))
        await job.quantum(delay(0.08))
        seen.append(parts)
    return seen


async def sharing(job: qloom.Job, log: str = "") -> list[Any]:
    """Data that many tasks use is written once."""
    data = job.share(list(range(100)))
    return await job.classical(total(data), total(data).needs(expected_s=0.02), total([1, 2]))


async def wide(job: qloom.Job, log: str = "") -> list[Any]:
    """Tasks that need several nodes at once, among others that need one."""
    work = [square(1, 0.02, log), square(2, 0.04, log).needs(nodes=2), square(3, 0.03, log).needs(nodes=3)]
    return [await job.classical(*work), await job.quantum(delay(0.02)), await job.classical(*work[:2])]


async def fails_late(job: qloom.Job, log: str = "") -> None:
    """The second phase fails while a quantum task is out."""
    await job.classical(square(1, 0.02, log))
    answer = job.quantum(delay(60.0))
    await job.classical(square(2, 0.05, log), fails("no luck"), square(3, 60.0, log))
    await answer


async def quantum_fails(job: qloom.Job, log: str = "") -> None:
    """A quantum task fails, beside another one and in a block; the program goes on. The last one ends it."""
    await job.classical(square(1, 0.02, log))
    beside = job.quantum(delay(0.05))
    try:
        await job.quantum(_unreadable(0.03))
    except QuantumFailed:
        await beside
    await job.classical(square(2, 0.02, log))
    try:
        async with job.quantum_block():
            await job.classical(square(3, 0.02, log))
            await job.quantum(_unreadable(0.02))
    except QuantumFailed:
        await job.classical(square(4, 0.02, log))
    await job.quantum(_unreadable(0.01))


def _unreadable(seconds: float) -> qloom.Payload:
    """A task that takes its time on a device and then fails, since its answer is no JSON."""
    return qloom.Payload("delay", JsonText("{"), seconds=seconds, name="unreadable")


async def no_qubo(job: qloom.Job, log: str = "") -> None:
    await job.classical(square(1, 0.02, log))
    await job.quantum("not a problem")


async def too_wide(job: qloom.Job, log: str = "") -> None:
    await job.classical(square(1).needs(nodes=4))


GOOD: list[ContractProgram] = [loop, overlap, three_at_once, block_of_five, candidate, speculation, sharing, wide]


async def all_good(job: qloom.Job, log: str = "") -> list[Any]:
    """All of them in one job, for worlds where a separate job for each takes long."""
    return [await program(job, log) for program in GOOD]


def source(program: ContractProgram) -> str:
    """A program as users name it."""
    return f"{Path(__file__)}:{program.__name__}"
