"""Synchronous programs in virtual time: what a call costs more than when it is awaited, and an estimator against Aer.

python -m benchmarks.sync_programs [--evaluations 10000]

1. SciPy minimises a function for N evaluations; each is a quantum call of the job. The same N calls are then made in
   a loop by a synchronous and by an asynchronous program: the difference is the price of not awaiting.
2. N evaluations of an observable by `job.qiskit_estimator()` and by bare Aer: one circuit, new values, 100 shots.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from qiskit import transpile  # type: ignore[import, unused-ignore]
from qiskit.circuit.library import efficient_su2  # type: ignore[import, unused-ignore]
from qiskit.quantum_info import SparsePauliOp  # type: ignore[import, unused-ignore]
from qiskit_aer import AerSimulator  # type: ignore[import, unused-ignore]
from scipy.optimize import minimize, rosen

import qloom
from qloom.job.sync import SyncJob
from qloom.lab.campaign.manifest import as_list, circumstances

SITE = qloom.Site(nodes=1, qpus=(qloom.Qpu("gates", "photonic"),))
SHOTS = 100
OBSERVABLE = SparsePauliOp(["ZZ", "XX", "IZ"], [1.0, 0.5, 0.2])
ANSATZ = efficient_su2(2, reps=1)


def minimise(cost: Any, evaluations: int) -> None:
    """Nelder and Mead's method, which has no end here but the number of evaluations."""
    limits = {"maxfev": evaluations, "maxiter": evaluations, "xatol": 0.0, "fatol": 0.0}
    minimize(cost, np.full(10, -1.0), method="Nelder-Mead", options=limits)


def seconds(program: Any, **parameters: Any) -> float:
    """Processor time of a run in virtual time."""
    begun = time.process_time()
    _ = qloom.run(program, world="virtual", in_memory=True, site=SITE, parameters=parameters).result
    return time.process_time() - begun


def calls(evaluations: int) -> dict[str, float]:
    """Seconds of each way to make the same calls."""
    points: list[float] = []

    def alone(x: Any) -> float:
        points.append(float(rosen(x)))
        return points[-1]

    def optimiser(job: SyncJob) -> None:
        minimise(lambda x: job.quantum(qloom.delay(0.001, float(rosen(x)))), evaluations)

    def synchronous(job: SyncJob) -> None:
        for value in points:
            job.quantum(qloom.delay(0.001, value))

    async def asynchronous(job: qloom.Job) -> None:
        for value in points:
            await job.quantum(qloom.delay(0.001, value))

    begun = time.process_time()
    minimise(alone, evaluations)
    alone_s = time.process_time() - begun
    return {
        "SciPy alone": alone_s,
        "SciPy, a call of the job in each evaluation": seconds(optimiser),
        "the same calls in a loop, synchronous": seconds(synchronous),
        "the same calls in a loop, awaited": seconds(asynchronous),
    }


def estimator(evaluations: int) -> tuple[float, float]:
    """Seconds of the job's estimator, and of Aer with the same circuits, values and shots."""

    def program(job: SyncJob) -> None:
        ours = job.qiskit_estimator(default_shots=SHOTS)
        for values in draws(evaluations):
            ours.run([(ANSATZ, OBSERVABLE, values)]).result()[0].data.evs.item()

    return seconds(program), bare_aer(evaluations)


def draws(evaluations: int) -> Any:
    """The same values of the parameters in each run."""
    return np.random.default_rng(0).uniform(0, 6, (evaluations, ANSATZ.num_parameters))


def bare_aer(evaluations: int) -> float:
    """As one would write it: both measurement circuits compiled once, bound and run, the counts added up."""
    simulator = AerSimulator(max_parallel_threads=1)
    in_z, in_x = ANSATZ.copy(), ANSATZ.copy()
    in_x.h([0, 1])
    circuits = []
    for circuit in (in_z, in_x):
        circuit.measure_all()
        circuits.append(transpile(circuit, simulator, optimization_level=0))
    begun = time.process_time()
    for values in draws(evaluations):
        bound = [circuit.assign_parameters(values) for circuit in circuits]
        z, x = simulator.run(bound, shots=SHOTS).result().get_counts()
        sum(n * (sign(text) + 0.2 * sign(text[-1])) for text, n in z.items()) / SHOTS
        sum(n * 0.5 * sign(text) for text, n in x.items()) / SHOTS
    return time.process_time() - begun


def sign(text: str) -> int:
    """The product of Z over the bits of an outcome."""
    return -1 if text.count("1") % 2 else 1


def main() -> None:
    """Print both comparisons as tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=10_000)
    number = parser.parse_args().evaluations
    calls(100)  # imports what is needed
    us = 1e6 / number
    print(f"{number:,} evaluations in virtual time, us of processor time each\n")
    found = calls(number)
    for name, each_s in found.items():
        print(f"| {name} | {each_s * us:.0f} |")
    *_, synchronous_s, awaited_s = found.values()
    print(f"| difference of the last two | {(synchronous_s - awaited_s) * us:.0f} |")
    estimator(10)
    ours_s, aer_s = estimator(number)
    print(f"| job.qiskit_estimator(), 2 circuits of {SHOTS} shots | {ours_s * us:.0f} |")
    print(f"| bare Aer, the same circuits | {aer_s * us:.0f} |")
    print(f"| ratio | {ours_s / aer_s:.2f} |")
    print(as_list(circumstances()))


if __name__ == "__main__":
    main()
