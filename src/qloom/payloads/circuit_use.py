"""What was found in a circuit: its sizes, and which gates it calls on which qubits.

A gate is known by the name that the circuit calls; what its definition consists of does not matter to a machine that
has it. Qubits are numbered through the registers in the order of their declaration.

A text of a hundred characters can declare registers of any size and call gates on all of them. So operands stay
ranges: what is kept of a circuit, and the time that it takes to read it, grow with its text alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_PAIRS = 10_000  # of qubits that are written out; machines have fewer couplings
MOST_GATES = 256  # names that are compared with a machine's
LONGEST_NAME = 100  # characters of one of them
Operand = range | None  # the qubits that an operand stands for; None: that is not known before the circuit runs


@dataclass
class Circuit:
    """What was found in one text."""

    qubits: int = 0
    bits: int = 0
    operations: int = 0
    physical: int = 0  # $0, $1, ...: one more than the highest
    measured: bool = False
    inputs: list[str] = field(default_factory=list)  # in the order of their declaration
    registers: list[tuple[str, int]] = field(default_factory=list)  # of classical bits, in that order too
    gates: dict[str, None] = field(default_factory=dict)  # that are called, by name
    together: dict[tuple[range, range], None] = field(default_factory=dict)  # operands of gates on two of them
    scattered: bool = False  # a gate is on qubits that are not known, or on more than two
    touched: dict[range, None] = field(default_factory=dict)  # operands that something is done with
    unplaced: bool = False  # something is done with qubits that are not known

    @property
    def size(self) -> int:
        """Qubits in all registers, or physical ones."""
        return max(self.qubits, self.physical)

    @property
    def used(self) -> int:
        """Qubits that something is done with; all, if that is not known."""
        if self.unplaced:
            return self.size
        count = end = 0
        for operand in sorted(self.touched, key=lambda one: one.start):
            count += max(0, operand.stop - max(end, operand.start))
            end = max(end, operand.stop)
        return count

    def touch(self, operand: Operand) -> None:
        """Something is done with these qubits."""
        if operand is None:
            self.unplaced = True
        else:
            self.touched[operand] = None

    def call(self, gate: str, operands: list[Operand]) -> None:
        """A gate is called; registers of one size are taken qubit by qubit."""
        if len(self.gates) <= MOST_GATES:
            self.gates[gate[:LONGEST_NAME]] = None
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands) or len(known) > 2:
            self.scattered = True
        elif len(known) == 2:
            self.together[known[0], known[1]] = None


def pairs_of(circuits: Iterable[Circuit]) -> tuple[tuple[int, int], ...] | None:
    """Pairs of qubits that gates bring together, in order; None if there are too many to be written out."""
    operands = dict.fromkeys(both for circuit in circuits for both in circuit.together)
    if sum(max(len(first), len(second)) for first, second in operands) > MOST_PAIRS:
        return None
    pairs: dict[tuple[int, int], None] = {}
    for first, second in operands:
        for turn in range(max(len(first), len(second))):
            pairs[first[turn % len(first)], second[turn % len(second)]] = None
    return tuple(pairs)
