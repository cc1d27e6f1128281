from qloom import call


async def program(job):
    weights = await job.classical(*(call(pow, 2, n).needs(expected_s=1) for n in range(3)))
    problem = {(n, n): -weight for n, weight in enumerate(weights)} | {(0, 1): 5, (1, 2): 5}
    sample = await job.quantum(problem)
    return sample.values, sample.energy
