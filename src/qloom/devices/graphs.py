"""Coupling graphs of machines, written out from a few numbers."""

from __future__ import annotations

from collections.abc import Sequence

from qloom.device import DeviceTarget
from qloom.errors import InputError

Pairs = list[tuple[int, int]]


def square_lattice(rows: Sequence[tuple[int, int]]) -> Pairs:
    """Neighbours in a square lattice of rows, each with its first column and its length; numbered row by row."""
    number: dict[tuple[int, int], int] = {}
    for row, (first, length) in enumerate(rows):
        for column in range(first, first + length):
            number[row, column] = len(number)
    pairs = []
    for (row, column), qubit in number.items():
        for neighbour in ((row, column + 1), (row + 1, column)):
            if neighbour in number:
                pairs.append((qubit, number[neighbour]))
    return pairs


def chimera(rows: int, columns: int, shore: int) -> Pairs:
    """Cells of two shores that are coupled with each other; one shore goes on in the column, the other in the row."""
    pairs = []
    for row in range(rows):
        for column in range(columns):
            first = 2 * shore * (row * columns + column)
            pairs += [(first + u, first + shore + v) for u in range(shore) for v in range(shore)]
            if row + 1 < rows:
                pairs += [(first + u, first + u + 2 * shore * columns) for u in range(shore)]
            if column + 1 < columns:
                pairs += [(first + shore + v, first + shore + v + 2 * shore) for v in range(shore)]
    return pairs


def couplings_of(target: DeviceTarget) -> Pairs:
    """All couplings of a target, those of a named graph included; none: all qubits are coupled, or none is said."""
    if not target.graph:
        return list(target.couplings)
    family, *numbers = target.graph.split()
    if family != "chimera" or len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        raise InputError(f"unknown graph {target.graph!r}", hint="chimera ROWS COLUMNS SHORE")
    return chimera(int(numbers[0]), int(numbers[1]), int(numbers[2]))
