"""The program of the journals that are kept here: every kind of call that a journal has a record of.

Do not change it: a kept journal can be resumed only as long as its program makes the calls that the journal holds.
"""

from __future__ import annotations

import time
from typing import Any

import qloom
from qloom import delay, task

GROUND_STATE = {("a", "a"): -1.0, ("b", "b"): -0.8, ("a", "b"): 2.5, ("c", "c"): -0.5}


def _value(number: int, seconds: float) -> int:
    return number * number


@task(expected_s=lambda number, seconds: seconds, stand_in=_value)
def square(number: int, seconds: float) -> int:
    """Take time."""
    time.sleep(seconds)
    return number * number


@task(expected_s=0.01)
def many(count: int) -> list[int]:
    """A result that is too long for the journal itself."""
    return list(range(count))


@task(expected_s=0.01)
def total(values: Any) -> int:
    """Use data that the tasks share."""
    return int(sum(values))


async def program(job: qloom.Job) -> list[Any]:
    """Phases, a QUBO, spare work, a block, a candidate, shared data and a task of two nodes."""
    numbers, first = await job.classical(many(1000), square(3, 0.06))
    job.speculate(square(4, 0.05), square(99, 0.07))
    sample = await job.quantum(GROUND_STATE, shots=20, expected_s=0.15)
    second = await job.classical(square(4, 0.05))
    shared = job.share(numbers)
    async with job.quantum_block():
        await job.quantum(delay(0.04, 1))
        inside = await job.classical(square(5, 0.03), total(shared))
        await job.quantum(delay(0.05, 2))
    answer = job.quantum(delay(0.11, 3))
    overlapped = await job.classical(square(6, 0.04).needs(nodes=2), square(7, 0.05))
    await answer
    chosen = await job.quantum(delay(0.02), or_classical=square(8, 0.03))
    (last,) = await job.classical(square(9, 0.02))
    return [len(numbers), first, sample.energy, *second, *inside, *overlapped, chosen is None or chosen, last]
