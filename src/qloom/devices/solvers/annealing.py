"""Simulated annealing, by dwave-samplers. The same seed gives the same samples, in any world."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from qloom.devices.solvers import OPTIONS, seed_of
from qloom.devices.solvers.samples import most_samples, samples
from qloom.errors import PayloadError
from qloom.payloads.qubo import read_qubo

MOST_SWEEPS = 100_000  # of one read
LARGEST = 5000  # variables: a dense problem of this size is 12.5 million couplings


def solve(request: dict[str, Any]) -> dict[str, Any]:
    """One read per shot."""
    import dimod
    import numpy as np
    from dwave.samplers import SimulatedAnnealingSampler

    problem = read_qubo(request["body"])
    names = _names(problem.variables)
    linear = dict(zip(names, problem.linear, strict=True))
    quadratic = {(names[u], names[v]): bias for (u, v), bias in problem.quadratic.items()}
    model = dimod.BinaryQuadraticModel(linear, quadratic, problem.offset, "BINARY")
    sampler: Any = SimulatedAnnealingSampler
    found = sampler().sample(model, num_reads=request["shots"], seed=seed_of(request), **_options(request))
    first = [int(found.first.sample[name]) for name in names]
    best = found.aggregate().record  # as arrays: shots x variables of Python objects may be gigabytes
    order = np.argsort(best.energy, kind="stable")[: most_samples(problem)]
    columns = [found.variables.index(name) for name in names]
    rows = [
        ([int(value) for value in best.sample[row][columns]], float(best.energy[row]), int(best.num_occurrences[row]))
        for row in order
    ]
    rows.sort(key=lambda row: row[0] != first)  # of samples with equal energy, the one that dimod calls the first
    return samples(problem, rows, shots=request["shots"])


def _options(request: dict[str, Any]) -> dict[str, Any]:
    """The sampler's options that a payload may have."""
    given = {name: value for name, value in request.get("options", {}).items() if name in OPTIONS["annealing"]}
    sweeps, betas = given.get("num_sweeps", 1), given.get("beta_range", [0.1, 1.0])
    if isinstance(sweeps, bool) or not isinstance(sweeps, int) or not 1 <= sweeps <= MOST_SWEEPS:
        raise PayloadError(f"num_sweeps must be a whole number from 1 to {MOST_SWEEPS}, not {sweeps!r}")
    if not isinstance(betas, list | tuple) or len(betas) != 2 or not all(_is_beta(beta) for beta in betas):
        raise PayloadError(f"beta_range must be two numbers above 0, not {betas!r}")
    return given


def _is_beta(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _names(labels: list[Any]) -> Sequence[Any]:
    """Labels under which dimod knows the variables: their order decides which samples a seed gives."""
    plain = all(type(label) is int for label in labels) or all(type(label) is str for label in labels)
    return labels if plain else range(len(labels))
