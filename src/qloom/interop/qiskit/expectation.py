"""Expectation values from counts: which circuits measure observables, and what their counts say.

An observable is a sum of words over `I X Y Z` and Qiskit's projectors `0 1 + - r l`, last qubit first, each with a
coefficient. Words that need no qubit in two bases are measured by the same shots. The value of an observable in one
shot is the sum over these words, so that its standard error has their covariances in it. Nothing here knows where
circuits are run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from qiskit import ClassicalRegister, QuantumCircuit  # type: ignore[import, unused-ignore]

from qloom.answers import Counts
from qloom.interop.qiskit.bits import check_counts, outcomes

Floats = np.ndarray[Any, np.dtype[np.float64]]
Basis = tuple[tuple[int, str], ...]  # measured qubits in ascending order, each with X, Y or Z

# letter: the basis in which its qubit is measured, and its value for the outcomes 0 and 1
LETTERS: dict[str, tuple[str, float, float]] = {
    "X": ("X", 1.0, -1.0),
    "Y": ("Y", 1.0, -1.0),
    "Z": ("Z", 1.0, -1.0),
    "0": ("Z", 1.0, 0.0),
    "1": ("Z", 0.0, 1.0),
    "+": ("X", 1.0, 0.0),
    "-": ("X", 0.0, 1.0),
    "r": ("Y", 1.0, 0.0),
    "l": ("Y", 0.0, 1.0),
}


@lru_cache(maxsize=256)
def group_words(words: tuple[str, ...]) -> list[tuple[Basis, list[str]]]:
    """Words that can be measured together, with their basis; a word of `I` alone needs no measurement."""
    groups: list[tuple[dict[int, str], list[str]]] = []
    needing = [word for word in words if word.strip("I")]
    for word in sorted(needing, key=lambda word: (word.count("I"), word)):  # the longest decide on the bases
        needed = {qubit: LETTERS[letter][0] for qubit, letter in enumerate(reversed(word)) if letter != "I"}
        for basis, members in groups:
            if all(basis.get(qubit, letter) == letter for qubit, letter in needed.items()):
                basis.update(needed)
                members.append(word)
                break
        else:
            groups.append((needed, [word]))
    return [(tuple(sorted(basis.items())), members) for basis, members in groups]


def basis_change(basis: Basis, qubits: int) -> Any:
    """The gates that turn the basis of each measured qubit to Z."""
    change = QuantumCircuit(qubits)
    for qubit, letter in basis:
        if letter == "Y":
            change.sdg(qubit)
        if letter in "XY":
            change.h(qubit)
    return change


def measured(circuit: Any, basis: Basis, change: Any) -> Any:
    """The circuit, the change of basis, and a measurement of these qubits into a new last register."""
    taken = {register.name for register in circuit.cregs}
    name = next(name for number in range(len(taken) + 1) if (name := f"observable{number or ''}") not in taken)
    register = ClassicalRegister(len(basis), name)
    whole = circuit.copy()
    whole.add_register(register)
    for gate in change.data:
        whole.append(gate.operation, [change.find_bit(qubit).index for qubit in gate.qubits])
    whole.measure([qubit for qubit, _ in basis], register)
    return whole


@dataclass(frozen=True)
class _Measurement:
    """What is read from one measurement: words, and their coefficients in each of some observables."""

    words: Sequence[str]
    observables: Sequence[int]
    coefficients: Floats  # words x observables


class Measurements:
    """Which measurements an array of observables needs at each point of an array of parameters.

    `points` has the points for each basis, as numbers in the flattened array; the circuits are in this order.
    """

    def __init__(self, shape: tuple[int, ...], observables: Any) -> None:
        self._observables: list[Mapping[str, float]] = [observables[index] for index in np.ndindex(observables.shape)]
        every_point = np.arange(int(np.prod(shape))).reshape(shape)
        numbers = np.arange(len(self._observables)).reshape(observables.shape)
        self._point_of, self._number_of = np.broadcast_arrays(every_point, numbers)
        self._size = (every_point.size, numbers.size)
        wanted: dict[int, dict[int, None]] = {}
        for point, number in zip(self._point_of.ravel().tolist(), self._number_of.ravel().tolist(), strict=True):
            wanted.setdefault(point, {})[number] = None
        plans: dict[tuple[int, ...], list[tuple[Basis, _Measurement]]] = {}
        self.points: dict[Basis, list[int]] = {}
        self._readings: dict[Basis, list[_Measurement]] = {}
        for point, chosen in wanted.items():
            together = tuple(chosen)
            if together not in plans:
                plans[together] = self._plan(together)
            for basis, measurement in plans[together]:
                self.points.setdefault(basis, []).append(point)
                self._readings.setdefault(basis, []).append(measurement)

    def _plan(self, together: tuple[int, ...]) -> list[tuple[Basis, _Measurement]]:
        chosen = [self._observables[number] for number in together]
        words = tuple(dict.fromkeys(word for observable in chosen for word in observable))
        plan = []
        for basis, members in group_words(words):
            table = np.array([[observable.get(word, 0.0) for observable in chosen] for word in members])
            plan.append((basis, _Measurement(members, together, table)))
        return plan

    def estimate(self, answers: Sequence[Counts], bits: int, shots: int) -> tuple[Floats, Floats]:
        """Expectation values and standard errors, in the shape of the broadcast arrays.

        The circuits had `bits` classical bits of their own, before those of the measurement.
        """
        constants = [sum(value for word, value in each.items() if not word.strip("I")) for each in self._observables]
        means, variances = np.tile(np.array(constants, dtype=float), (self._size[0], 1)), np.zeros(self._size)
        rest = iter(answers)
        for basis, points in self.points.items():
            for point, measurement in zip(points, self._readings[basis], strict=True):
                rows, occurrences = outcomes(check_counts(next(rest), bits + len(basis), shots))
                values = word_values(measurement.words, basis, rows[:, -len(basis) :]) @ measurement.coefficients
                mean, variance = mean_and_variance(values, occurrences)
                means[point, measurement.observables] += mean
                variances[point, measurement.observables] += variance
        place = (self._point_of, self._number_of)
        return np.asarray(means[place]), np.asarray(np.sqrt(variances[place]))


def word_values(words: Sequence[str], basis: Basis, rows: Any) -> Floats:
    """The value of each word (a column) for each outcome (a row): a product over the measured qubits."""
    values = np.ones((len(rows), len(words)))
    for column, (qubit, _) in enumerate(basis):
        letters = [word[-1 - qubit] for word in words]
        table = np.array([LETTERS[letter][1:] if letter != "I" else (1.0, 1.0) for letter in letters])
        values *= table.T[rows[:, column]]
    return values


def mean_and_variance(values: Floats, occurrences: Any) -> tuple[Floats, Floats]:
    """The mean of each column over all shots, and the variance of that mean, of which a single shot says nothing."""
    shots = occurrences.sum()
    mean = occurrences @ values / shots
    spread = occurrences @ (values - mean) ** 2
    return mean, spread / (shots - 1) / shots if shots > 1 else np.full_like(mean, np.nan)
