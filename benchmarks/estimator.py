"""The estimator against exact values: z-scores of random circuits and observables, through a job in virtual time.

python -m benchmarks.estimator [--circuits 1000] [--shots 400]

A z-score is (estimate - exact value) / standard error. If the estimates are unbiased and the standard errors right,
z-scores have mean 0 and standard deviation 1. Near an eigenstate of an observable the counts say little about the
spread; such cases are left out and counted.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from qiskit import QuantumCircuit  # type: ignore[import, unused-ignore]
from qiskit.primitives import StatevectorEstimator  # type: ignore[import, unused-ignore]
from qiskit.quantum_info import SparsePauliOp, random_pauli_list  # type: ignore[import, unused-ignore]

import qloom
from qloom.job.sync import SyncJob
from qloom.lab.campaign.manifest import as_list, circumstances

SITE = qloom.Site(nodes=1, qpus=(qloom.Qpu("gates", "superconducting"),))
STRUCTURES = 8  # which qubits are entangled in which order: a text that was parsed is run with new angles
LAYERS = 3
NEAR = 0.2  # a standard error below this part of what independent random bits would have is left out


def pubs(number: int) -> list[tuple[Any, Any]]:
    """Circuits of 1 to 4 qubits with random gates on each qubit, observables of 1 to 5 random Pauli words."""
    random = np.random.default_rng(0)
    found = []
    for structure in range(STRUCTURES):
        qubits = 1 + structure % 4
        pairs = [random.choice(qubits, 2, replace=False) for _ in range(LAYERS)] if qubits > 1 else []
        for _ in range(structure, number, STRUCTURES):
            circuit = QuantumCircuit(qubits)
            for layer in range(LAYERS):
                for qubit in range(qubits):
                    circuit.u(*random.uniform(0, 2 * np.pi, 3), qubit)
                if pairs:
                    circuit.cx(*pairs[layer].tolist())
            words = int(random.integers(1, 6))
            paulis = random_pauli_list(qubits, words, seed=int(random.integers(2**31)), phase=False)
            found.append((circuit, SparsePauliOp(paulis, random.normal(size=words))))
    return found


def estimates(job: SyncJob, number: int, shots: int) -> list[tuple[float, float]]:
    """Each value with its standard error."""
    estimator = job.qiskit_estimator(default_shots=shots)
    results = estimator.run(pubs(number)).result()
    return [(float(result.data.evs), float(result.data.stds)) for result in results]


def main() -> None:
    """Print mean and standard deviation of the z-scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--circuits", type=int, default=1000)
    parser.add_argument("--shots", type=int, default=400)
    given = parser.parse_args()
    parameters = {"number": given.circuits, "shots": given.shots}
    found = qloom.run(estimates, world="virtual", in_memory=True, site=SITE, parameters=parameters).result
    scores = []
    for (circuit, observable), (value, error) in zip(pubs(given.circuits), found, strict=True):
        exact = float(StatevectorEstimator().run([(circuit, observable)]).result()[0].data.evs)
        if error > NEAR * np.linalg.norm(observable.coeffs) / np.sqrt(given.shots):
            scores.append((value - exact) / error)
    print(f"{given.circuits} circuits and observables, {given.shots} shots of each measurement")
    print(f"| z-scores | {len(scores)} ({given.circuits - len(scores)} near an eigenstate) |")
    print(f"| mean | {np.mean(scores):+.3f} |")
    print(f"| standard deviation | {np.std(scores):.3f} |")
    print(f"| largest | {np.max(np.abs(scores)):.2f} |")
    print(as_list(circumstances()))


if __name__ == "__main__":
    main()
