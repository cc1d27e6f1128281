"""Time limits as users ask for them, for traces that do not have any.

A user asks for the run time times a factor drawn evenly from 1 to 5 (Mu'alem and Feitelson 2001 use the same range
to study wrong estimates), rounded up to one of the few values that people write (Tsafrir, Etsion and Feitelson 2005).
"""

from __future__ import annotations

from bisect import bisect_left
from random import Random

USUAL_LIMITS_S = tuple(
    60 * minutes for minutes in (5, 10, 15, 20, 30, 60, 120, 180, 240, 360, 480, 720, 1440, 2880, 5760, 10080)
)
LARGEST_FACTOR = 5.0


def estimate_s(run_s: float, rng: Random) -> float:
    """A time limit for a job of this length; never shorter than the job."""
    wanted_s = run_s * rng.uniform(1.0, LARGEST_FACTOR)
    place = bisect_left(USUAL_LIMITS_S, wanted_s)
    return float(USUAL_LIMITS_S[place]) if place < len(USUAL_LIMITS_S) else float(round(wanted_s))
