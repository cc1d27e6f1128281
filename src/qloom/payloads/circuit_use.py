"""What was found in a circuit: its sizes, and which gates it calls on which qubits.

A gate is known by the name that the circuit calls; what its definition consists of does not matter to a machine that
has it. Qubits are numbered through the registers in the order of their declaration.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MOST = 100_000  # qubits and pairs that are told apart
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
    pairs: dict[tuple[int, int], None] = field(default_factory=dict)  # of qubits that a gate works on together
    scattered: bool = False  # a gate is on qubits that are not known, on more than two, or there are too many of them
    touched: dict[int, None] = field(default_factory=dict)  # qubits that something is done with
    unplaced: bool = False  # something is done with qubits that are not known
    _seen: dict[range | tuple[range, range], None] = field(default_factory=dict)  # all of it takes linear time

    @property
    def size(self) -> int:
        """Qubits in all registers, or physical ones."""
        return max(self.qubits, self.physical)

    @property
    def used(self) -> int:
        """Qubits that something is done with; all, if that is not known."""
        return self.size if self.unplaced else len(self.touched)

    def touch(self, operand: Operand) -> None:
        """Something is done with these qubits."""
        if operand is None or len(operand) > MOST:
            self.unplaced = True
        elif operand not in self._seen:
            self._seen[operand] = None
            self.touched.update(dict.fromkeys(operand))

    def call(self, gate: str, operands: list[Operand]) -> None:
        """A gate is called; registers of one size are taken qubit by qubit."""
        self.gates[gate] = None
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands) or len(known) > 2:
            self.scattered = True
        elif len(known) == 2 and (both := (known[0], known[1])) not in self._seen:
            first, second = both
            width = max(len(first), len(second))
            self._seen[both] = None
            self.scattered = self.scattered or len(self.pairs) + width > MOST
            for turn in range(0 if self.scattered else width):
                self.pairs[first[turn % len(first)], second[turn % len(second)]] = None
