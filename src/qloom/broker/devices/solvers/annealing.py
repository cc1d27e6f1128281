"""Simulated annealing, by dwave-samplers. The same seed gives the same samples, in any world."""

from __future__ import annotations

from typing import Any

from qloom.broker.devices.payloads.qubo import read_qubo
from qloom.broker.devices.solvers import seed_of
from qloom.broker.devices.solvers.samples import samples

LARGEST = 5000  # variables: a dense problem of this size is 12.5 million couplings


def solve(request: dict[str, Any]) -> dict[str, Any]:
    """One read per shot."""
    import dimod
    from dwave.samplers import SimulatedAnnealingSampler

    problem = read_qubo(request["body"])
    names = range(len(problem.variables))
    model = dimod.BinaryQuadraticModel(dict(enumerate(problem.linear)), problem.quadratic, problem.offset, "BINARY")
    sampler: Any = SimulatedAnnealingSampler
    found = sampler().sample(model, num_reads=request["shots"], seed=seed_of(request))
    rows = [
        ([int(sample[name]) for name in names], energy, occurrences)
        for sample, energy, occurrences in found.data(["sample", "energy", "num_occurrences"], sorted_by=None)
    ]
    return samples(problem, rows)
