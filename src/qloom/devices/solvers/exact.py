"""The proven optimum, to measure other devices by: all assignments of a small QUBO, an integer program beyond."""

from __future__ import annotations

import importlib.util
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.devices.solvers.samples import samples
from qloom.errors import InputError, QuantumFailed
from qloom.payloads.qubo import Qubo, read_qubo

SMALL = 20  # variables: 2**20 assignments take 8 MB of energies
LARGEST = 500
TIME_LIMIT_S = 300.0


def largest() -> int:
    """Without scipy only small problems can be solved."""
    return LARGEST if importlib.util.find_spec("scipy") is not None else SMALL


def solve(request: dict[str, Any]) -> dict[str, Any]:
    """One sample, and the word that it is optimal; fails if that cannot be proven in time."""
    problem = read_qubo(request["body"])
    if len(problem.variables) <= SMALL:
        best = _all_assignments(problem)
    else:
        best = _integer_program(problem, float(request.get("options", {}).get("time_limit_s", TIME_LIMIT_S)))
    return samples(problem, [(best, problem.energy(best), request["shots"])], optimal=True)


def _all_assignments(problem: Qubo) -> list[int]:
    """Energies of all assignments, doubled up variable by variable: bit i of an index is the value of i."""
    energies: NDArray[np.float64] = np.zeros(1)
    count = len(problem.variables)
    couplings = np.zeros((count, count))
    for (u, v), bias in problem.couplings().items():
        couplings[v, u] = bias  # u < v: what v adds if u is set too
    for variable, bias in enumerate(problem.linear):
        added = np.zeros(1)
        for earlier in range(variable):
            added = np.concatenate([added, added + couplings[variable, earlier]])
        energies = np.concatenate([energies, energies + bias + added])
    best = int(np.argmin(energies))
    return [best >> variable & 1 for variable in range(count)]


def _integer_program(problem: Qubo, time_limit_s: float) -> list[int]:
    """Each product of two variables becomes a variable of its own, held to it from the side that matters."""
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array
    except ImportError:
        raise InputError(f"more than {SMALL} variables need scipy", hint="pip install 'qloom[exact]'") from None
    count = len(problem.variables)
    cliques = _cliques(problem)
    never = {pair for clique in cliques for pair in itertools.combinations(clique, 2)}
    pairs = [(pair, bias) for pair, bias in problem.couplings().items() if bias and pair not in never]
    costs = np.concatenate([problem.linear, [bias for _, bias in pairs]])
    entries = [(row, variable, 1.0) for row, clique in enumerate(cliques) for variable in clique]
    upper = [1.0] * len(cliques)
    for product, ((u, v), bias) in enumerate(pairs, start=count):
        if bias > 0:  # cheap is 0: x + y - product <= 1
            entries += [(len(upper), u, 1.0), (len(upper), v, 1.0), (len(upper), product, -1.0)]
            upper.append(1.0)
        else:  # cheap is 1: product <= x, product <= y
            for end in (u, v):
                entries += [(len(upper), product, 1.0), (len(upper), end, -1.0)]
                upper.append(0.0)
    constraints = []
    if upper:
        rows, columns, values = (np.array(part) for part in zip(*entries, strict=True))
        table = csr_array((values, (rows, columns)), shape=(len(upper), len(costs)))
        constraints.append(LinearConstraint(table, ub=np.array(upper)))
    whole = np.concatenate([np.ones(count), np.zeros(len(pairs))])
    solved = milp(
        costs,
        integrality=whole,
        bounds=Bounds(0, 1),
        constraints=constraints,
        options={"mip_rel_gap": 0.0, "time_limit": time_limit_s},
    )
    if solved.status != 0:
        raise QuantumFailed(f"no proof of an optimum of {count} variables in {time_limit_s:g} s")
    return [int(value > 0.5) for value in solved.x[:count]]


def _cliques(problem: Qubo) -> list[list[int]]:
    """Groups of which some optimum sets at most one: their couplings cost at least what setting a second one gains.

    One row for a group is a much tighter program than one for each of its pairs.
    """
    gains = [-bias for bias in problem.linear]  # the most that setting a variable can gain
    for (u, v), bias in problem.quadratic.items():
        gains[u] -= min(bias, 0.0)
        gains[v] -= min(bias, 0.0)
    apart: list[dict[int, None]] = [{} for _ in problem.variables]
    for (u, v), bias in problem.quadratic.items():
        if bias > 0 and bias >= min(gains[u], gains[v]):
            apart[u][v] = apart[v][u] = None
    found: list[list[int]] = []
    covered: set[tuple[int, int]] = set()
    for u, v in ((u, v) for u, others in enumerate(apart) for v in others if u < v):
        if (u, v) in covered:
            continue
        clique = [u, v]
        for other in apart[u]:
            if other != v and all(other in apart[member] for member in clique):
                clique.append(other)
        clique.sort()
        covered.update(itertools.combinations(clique, 2))
        found.append(clique)
    return found
