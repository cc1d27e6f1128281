"""A program from one number, in both faces: every kind of call and payload, on several devices.

`awaited` and `plain` make the same calls, one with `await` and one without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from qloom.answers import Counts, Sample
from qloom.job.sync import SyncJob
from qloom.model import call
from qloom.payloads.adapt import delay
from qloom.site import Qpu, Site
from tests.golden import drawn
from tests.golden.drawn import Draw
from tests.simulation.harness import compute

CIRCUIT = """OPENQASM 3.0;
include "stdgates.inc";
input float[64] theta;
qubit[2] q;
bit[2] c;
ry(theta) q[0];
cx q[0], q[1];
c = measure q;
"""
PAYLOADS = ("delay", "qubo", "circuit", "circuits", "named")
STEPS = ("classical", "quantum", "overlap", "several", "block", "speculate", "candidate", "spend")
SECONDS = (0.0, 0.1, 0.5, 2.5, 7.0)
Place = tuple[int, ...]


def draw_site(rng: Draw) -> Site:
    """Three devices; of the two annealers one may be away for a while."""
    away = rng.choice([(), (), ((1.0, 4.0), (9.0, 20.0))])
    qpus = (Qpu("gates", "photonic"), Qpu("a", shares=2, outages_s=away), Qpu("b", shares=3, lanes=2))
    return Site(nodes=3, qpus=qpus, overheads=drawn.site(rng).overheads)


def draw_steps(seed: int) -> list[tuple[Any, ...]]:
    """What the program of a number does: a kind, its tasks, its payloads and a number of seconds."""
    rng = Draw("any program", seed)
    return [
        (
            rng.choice(STEPS),
            [(rng.choice(SECONDS), rng.choice([1, 1, 2])) for _ in range(rng.between(1, 3))],
            [rng.choice(PAYLOADS) for _ in range(rng.between(1, 3))],
            rng.choice(SECONDS),
        )
        for _ in range(rng.between(1, 4))
    ]


def _tasks(step: tuple[Any, ...], place: int) -> list[Any]:
    return [compute(seconds, place, n).needs(nodes=nodes) for n, (seconds, nodes) in enumerate(step[1])]


def _payload(kind: str, place: Place, seconds: float) -> tuple[Any, dict[str, Any]]:
    """A payload that differs from those of other places, and the options of its call."""
    number = float(sum((n + 1) * 10**digit for digit, n in enumerate(place)))
    match kind:
        case "delay":
            return delay(seconds, list(place)), {}
        case "named":
            return delay(seconds, list(place)), {"device": "b"}
        case "qubo":
            return {("x", "x"): -number, ("x", "y"): 2 * number, ("y", "y"): -0.5}, {"shots": 20}
        case "circuit":
            return (CIRCUIT, [0.1 * number]), {"shots": 30}
    return [(CIRCUIT, [0.2 * number]), (CIRCUIT, [0.2 * number])], {"shots": 30}


def _known(answer: Any) -> Any:
    """What of an answer is the same in every run."""
    if isinstance(answer, Counts):
        return dict(answer.counts)
    if isinstance(answer, Sample):
        return answer.energy
    return [_known(one) for one in answer] if isinstance(answer, list) else answer


async def awaited(job: Any, seed: int = 0) -> list[Any]:
    """The asynchronous face."""

    async def quantum(kind: str, place: Place, seconds: float) -> Any:
        payload, options = _payload(kind, place, seconds)
        return _known(await job.quantum(payload, **options))

    seen: list[Any] = []
    for place, step in enumerate(draw_steps(seed)):
        kind, _, payloads, seconds = step
        tasks = _tasks(step, place)
        match kind:
            case "classical":
                seen.append(await job.classical(*tasks))
            case "quantum":
                seen.append(await quantum(payloads[0], (place,), seconds))
            case "overlap":
                payload, options = _payload(payloads[0], (place,), seconds)
                work, answer = job.classical(*tasks), job.quantum(payload, **options)
                seen.append([await work, _known(await answer)])
            case "several":
                calls = (quantum(name, (place, n), seconds) for n, name in enumerate(payloads))
                seen.append(list(await asyncio.gather(*calls)))
            case "block":
                async with job.quantum_block():
                    seen.append([await quantum(name, (place, n), seconds) for n, name in enumerate(payloads)])
            case "speculate":
                job.speculate(*tasks)
                seen.append([await quantum(payloads[0], (place,), seconds), await job.classical(*tasks)])
            case "candidate":  # which of the two runs depends on the load
                await job.quantum(delay(seconds), or_classical=call(compute, 1.0, place).needs(expected_s=1.0))
            case "spend":
                await job.spend(seconds)
    return seen


def plain(job: SyncJob, seed: int = 0) -> list[Any]:
    """The synchronous face."""

    def quantum(kind: str, place: Place, seconds: float) -> Any:
        payload, options = _payload(kind, place, seconds)
        return _known(job.quantum(payload, **options))

    seen: list[Any] = []
    for place, step in enumerate(draw_steps(seed)):
        kind, _, payloads, seconds = step
        tasks = _tasks(step, place)
        match kind:
            case "classical":
                seen.append(job.classical(*tasks))
            case "quantum":
                seen.append(quantum(payloads[0], (place,), seconds))
            case "overlap":
                payload, options = _payload(payloads[0], (place,), seconds)
                work, answer = job.start_classical(*tasks), job.start_quantum(payload, **options)
                seen.append([work.result(), _known(answer.result())])
            case "several":
                seen.append(_several(job, payloads, place, seconds))
            case "block":
                with job.quantum_block():
                    seen.append([quantum(name, (place, n), seconds) for n, name in enumerate(payloads)])
            case "speculate":
                job.speculate(*tasks)
                seen.append([quantum(payloads[0], (place,), seconds), job.classical(*tasks)])
            case "candidate":
                job.quantum(delay(seconds), or_classical=call(compute, 1.0, place).needs(expected_s=1.0))
            case "spend":
                job.spend(seconds)
    return seen


def _several(job: SyncJob, payloads: Sequence[str], place: int, seconds: float) -> list[Any]:
    handles = []
    for n, name in enumerate(payloads):
        payload, options = _payload(name, (place, n), seconds)
        handles.append(job.start_quantum(payload, **options))
    return [_known(handle.result()) for handle in handles]
