"""A synthetic hybrid program: classical tasks of given lengths, a quantum phase, a scoring task, repeated.

The lengths are those of the clustering application of the QCE25 paper, scaled down by ten.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from qloom.errors import InputError
from qloom.model import task
from qloom.payloads.adapt import delay

if TYPE_CHECKING:
    from qloom.job.job import Job


def _value(seconds: float, iteration: int, part: int, burn: bool) -> float:
    """What a task of this program computes: something that depends on its arguments alone."""
    return round(seconds + iteration / 10 + part / 100, 6)


@task(expected_s=lambda seconds, iteration, part, burn: seconds, stand_in=_value)
def work(seconds: float, iteration: int, part: int, burn: bool) -> float:
    """Sleep, or keep a core busy, for some seconds."""
    if burn:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass
    else:
        time.sleep(seconds)
    return _value(seconds, iteration, part, burn)


async def program(
    job: Job,
    *,
    classical_s: Any = (7.7, 0.2, 0.2),
    score_s: float = 5.4,
    quantum_s: Any = 12.0,
    iterations: int = 4,
    burn: bool = False,
    speculate: bool = False,
    arrivals_s: Any = 0.0,
    devices: str | Sequence[str] = (),
    jitter: float = 0.0,
) -> float:
    """Repeat: tasks of `classical_s` seconds each, one quantum task, one scoring task (none if `score_s` is 0).

    With `speculate`, the next iteration's classical tasks are offered as spare work during the quantum phase.
    `quantum_s`, `arrivals_s` (when a job begins) and `devices` may be lists, which the jobs of a run take in turn.
    With `jitter`, all lengths are stretched by random factors of this relative spread, decided by the job's seed.
    """
    lengths_s = _seconds("classical_s", classical_s)
    (score_length_s,) = _seconds("score_s", score_s)
    quantum_length_s = _own(job, _seconds("quantum_s", quantum_s))
    device = _own(job, [devices] if isinstance(devices, str) else devices or [None])
    check_parameters({"iterations": iterations})
    (spread,) = _seconds("jitter", jitter)
    random = Random(job.seed)
    stretched = [
        [_stretched(seconds, spread, random) for seconds in (score_length_s, quantum_length_s, *lengths_s)]
        for _ in range(iterations)
    ]

    def classical_tasks(iteration: int) -> list[Any]:
        return [work(seconds, iteration, part, burn) for part, seconds in enumerate(stretched[iteration][2:])]

    await asyncio.sleep(_own(job, _seconds("arrivals_s", arrivals_s)))
    best = 0.0
    for iteration in range(iterations):
        scoring_s, executing_s = stretched[iteration][:2]
        parts = await job.classical(*classical_tasks(iteration))
        if speculate and iteration + 1 < iterations:
            job.speculate(*classical_tasks(iteration + 1))
        await job.quantum(delay(executing_s), device=device)
        scoring = [work(scoring_s, iteration, len(parts), burn)] if scoring_s else []
        scores = await job.classical(*scoring) if scoring else []
        best = max(best, round(sum(scores) + sum(parts), 6))
    return best


def check_parameters(parameters: dict[str, Any]) -> None:
    """Refuse wrong values before a job is submitted."""
    for name in ("classical_s", "score_s", "quantum_s", "arrivals_s", "jitter"):
        if name in parameters:
            _seconds(name, parameters[name])
    iterations = parameters.get("iterations", 1)
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise InputError(f"iterations must be a whole number of at least 1, not {iterations!r}")


program.check_parameters = check_parameters  # type: ignore[attr-defined]


def _own(job: Job, values: Any) -> Any:
    """The value for this job: jobs j1, j2, ... take them in turn."""
    return values[(int(job.name[1:]) - 1) % len(values)]


def _stretched(seconds: float, spread: float, random: Random) -> float:
    """A length of the same mean; none is drawn where there is no spread, so that lengths stay exact."""
    return round(seconds * random.lognormvariate(-(spread**2) / 2, spread), 6) if spread else seconds


def _seconds(name: str, given: Any) -> list[float]:
    values = list(given) if isinstance(given, list | tuple) else [given]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            what = "a relative spread of at least 0" if name == "jitter" else "seconds"
            raise InputError(f"{name} must be {what}, not {value!r}", hint=f"--set {name}=1.5")
    if not values:
        raise InputError(f"{name} must name at least one length in seconds")
    return [float(value) for value in values]
