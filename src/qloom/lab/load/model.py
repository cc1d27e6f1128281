"""Rigid jobs as the Lublin-Feitelson model draws them: sizes and run times; arrivals are in `arrivals.py`.

Parameters: U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers: modeling the characteristics of
rigid jobs", J. Parallel and Distributed Computing 63(11), 2003, for batch jobs.
"""

from __future__ import annotations

import math
from random import Random

from qloom.errors import InputError
from qloom.lab.load.estimates import estimate_s
from qloom.lab.load.workload import LoadJob

SERIAL = 0.244  # share of jobs on one node
POWER_OF_2 = 0.576  # share of jobs on a power of two
LOG_LOW, LOG_GAP, LOW_SHARE = 0.8, 2.5, 0.86  # log2 of the size: two stages, the lower one is drawn so often
SHORT = (4.2, 0.94)  # gamma distribution of the logarithm of short run times
LONG = (312.0, 0.03)  # and of long ones
SHORT_SLOPE, SHORT_AT_0 = -0.0054, 0.78  # share of short ones, falling with the size
LONGEST_S = 2 * 24 * 3600  # a longer run time is drawn again, as a cluster's limit would have it
PROJECTS = 16


def lublin(jobs: int, nodes: int, rng: Random) -> list[LoadJob]:
    """So many jobs for a cluster of so many nodes; `submit_s` is their number until arrivals are given."""
    if jobs < 1 or nodes < 2:
        raise InputError(f"a workload needs at least 1 job and 2 nodes, not {jobs} and {nodes}")
    made = []
    for number in range(1, jobs + 1):
        size = _size(nodes, rng)
        run_s = _run_s(size, rng)
        project = min(int(rng.paretovariate(0.8)) - 1, PROJECTS - 1)  # a few projects submit most jobs
        made.append(LoadJob(number, float(number), run_s, size, estimate_s(run_s, rng), project))
    return made


def _size(nodes: int, rng: Random) -> int:
    kind = rng.random()
    if kind <= SERIAL:
        return 1
    high = math.log2(nodes)
    middle = max(LOG_LOW, high - LOG_GAP)
    low = rng.random() <= LOW_SHARE
    exponent = rng.uniform(LOG_LOW, middle) if low else rng.uniform(middle, high)
    if kind <= SERIAL + POWER_OF_2:
        exponent = math.floor(exponent + 0.5)
    return min(nodes, math.floor(2**exponent + 0.5))


def _run_s(size: int, rng: Random) -> float:
    short = rng.random() <= max(0.0, SHORT_SLOPE * size + SHORT_AT_0)
    while True:
        run_s = math.exp(rng.gammavariate(*(SHORT if short else LONG)))
        if run_s <= LONGEST_S:
            return float(max(1, round(run_s)))
