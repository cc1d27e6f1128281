"""The ways in which phases may overlap, one after the other.

qloom run examples/overlap.py --strategy malleable
qloom run examples/overlap.py --qpu main:annealer:offline --set candidates_only=true
"""

import asyncio

from qloom import Sample, task


@task(expected_s=0.3)
def prepare(n):
    return -1.0 - n


@task(expected_s=0.1)
def greedy(problem):
    """A classical stand-in for the device: gives the same kind of answer as it does."""
    values = {u: int(bias < 0) for (u, v), bias in problem.items() if u == v}
    return Sample(values, sum(bias for (u, v), bias in problem.items() if values[u] and values[v]))


async def started_and_awaited_later(job):
    answer = job.quantum({("x", "x"): -1.0}, expected_s=0.5)
    (bias,) = await job.classical(prepare(1))  # runs while the QPU is busy
    return bias + (await answer).energy


async def several_out_at_once(job):
    problems = [{("x", "x"): bias} for bias in await job.classical(prepare(2), prepare(3))]
    samples = await asyncio.gather(*(job.quantum(problem, expected_s=0.2) for problem in problems))
    return sum(sample.energy for sample in samples)


async def in_one_block(job):
    energy = 0.0
    async with job.quantum_block():  # nobody else gets the QPU in between
        for n in range(3):
            energy += (await job.quantum({("x", "x"): -1.0 - n}, shots=10)).energy
    return energy


async def candidate(job):
    problem = {("x", "x"): -4.0}
    return (await job.quantum(problem, or_classical=greedy(problem))).energy


async def program(job, candidates_only=False):
    parts = (
        [candidate] if candidates_only else [started_and_awaited_later, several_out_at_once, in_one_block, candidate]
    )
    return {part.__name__: await part(job) for part in parts}
