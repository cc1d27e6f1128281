"""Choose antennas that do not disturb each other: a hybrid loop in the shape that most of them have.

Each iteration measures the antennas (classical tasks), chooses some of them (a QUBO for the QPU) and scores the
choice (one classical task), until the score is good enough.

    qloom run examples/antennas.py
    qloom compare examples/antennas.py --world virtual --set antennas=12
"""

import random

from qloom import task

PENALTY = 2.0


@task(expected_s=lambda positions, part, iteration: 1.5 + part / 2)
def measure(positions, part, iteration):
    """Strength of every third antenna, seen from a user at some random place."""
    user = random.Random(iteration).random()
    return {n: 1.0 - abs(at - user) for n, at in enumerate(positions) if n % 3 == part}


@task(expected_s=0.8)
def score(strengths, chosen):
    """How much of the possible strength the chosen antennas have."""
    return sum(strengths[n] for n in chosen) / sum(strengths.values())


def choice_qubo(positions, strengths, reach):
    """Take strong antennas; two that are closer than `reach` must not both be taken."""
    problem = {(n, n): -strength for n, strength in strengths.items()}
    for a, at in enumerate(positions):
        for b in range(a):
            if abs(at - positions[b]) < reach:
                problem[b, a] = PENALTY
    return problem


async def program(job, antennas=9, iterations=3, reach=0.1, good_enough=0.6):
    draw = random.Random(job.seed)
    positions = job.share([draw.random() for _ in range(antennas)])  # written once, used by every task
    best = (0.0, [])
    for iteration in range(iterations):
        measurements = await job.classical(*(measure(positions, part, iteration) for part in range(3)))
        strengths = {n: strength for part in measurements for n, strength in part.items()}
        if iteration + 1 < iterations:  # these need nothing from the QPU: idle nodes may begin them now
            job.speculate(*(measure(positions, part, iteration + 1) for part in range(3)))
        sample = await job.quantum(choice_qubo(positions.value, strengths, reach), shots=50, expected_s=2.0)
        chosen = sorted(n for n, taken in sample.values.items() if taken)
        (share,) = await job.classical(score(strengths, chosen))
        best = max(best, (round(share, 3), chosen))
        if share >= good_enough:
            break
    return best
