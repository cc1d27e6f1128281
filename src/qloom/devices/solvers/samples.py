"""The answer to a QUBO, one form for all solvers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from qloom.payloads.qubo import Qubo

MOST_VALUES = 10_000_000  # of all samples together: of more, the best are returned


def most_samples(problem: Qubo) -> int:
    """How many samples an answer has at most: all but for very many shots of a very large problem."""
    return max(1000, MOST_VALUES // len(problem.variables))


def samples(problem: Qubo, rows: Iterable[tuple[Sequence[int], float, int]], **more: Any) -> dict[str, Any]:
    """Rows of (values, energy, occurrences); the best come first."""
    merged: dict[tuple[int, ...], tuple[float, int]] = {}
    for values, energy, occurrences in rows:
        key = tuple(int(value) for value in values)
        merged[key] = (float(energy), merged.get(key, (0.0, 0))[1] + int(occurrences))
    ordered = sorted(merged.items(), key=lambda entry: entry[1][0])  # stable: of equals, the first that was found
    best, (energy, _) = ordered[0]
    kept = ordered[: most_samples(problem)]
    return {
        "form": "samples",
        "values": [[variable, value] for variable, value in zip(problem.variables, best, strict=True)],
        "energy": energy,
        "variables": problem.variables,
        "samples": [list(values) for values, _ in kept],
        "energies": [energy for _, (energy, _) in kept],
        "occurrences": [occurrences for _, (_, occurrences) in kept],
        "shots": sum(occurrences for _, occurrences in merged.values()),
        **more,
    }
