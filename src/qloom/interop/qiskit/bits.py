"""The bits of counts: which bit of an outcome belongs to which register of a circuit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from qloom.answers import Counts
from qloom.errors import QuantumFailed

Rows = np.ndarray[Any, np.dtype[np.uint8]]
Occurrences = np.ndarray[Any, np.dtype[np.int64]]


def check_counts(answer: Any, width: int, shots: int) -> Counts:
    """The answer, if it is counts of so many bits and shots."""
    if not isinstance(answer, Counts):
        raise QuantumFailed("the device does not answer with counts", hint="job.quantum(...) returns what it sent")
    if sum(answer.counts.values()) != shots or any(len(text) - text.count(" ") != width for text in answer.counts):
        raise QuantumFailed(f"the device's counts are not {shots} shots of {width} bits")
    return answer


def by_registers(circuit: Any, answer: Counts) -> Counts:
    """The counts with the registers of the circuit, by its own names.

    A circuit with bits outside all registers, or in two of them, was sent with a single register of all bits.
    """
    registers = tuple((register.name, register.size) for register in circuit.cregs)
    bits = [bit for register in circuit.cregs for bit in register]
    if len(bits) == len(dict.fromkeys(bits)) == len(circuit.clbits):
        return replace(answer, registers=registers)
    places = [[circuit.find_bit(bit).index for bit in reversed(register)] for register in reversed(circuit.cregs)]
    counts: dict[str, int] = {}
    for outcome, number in answer.counts.items():
        text = " ".join("".join(outcome[-1 - place] for place in register) for register in places)
        counts[text] = counts.get(text, 0) + number
    return Counts(counts, registers, answer.shots)


def outcomes(answer: Counts) -> tuple[Rows, Occurrences]:
    """The different outcomes, one row each, bit 0 of the first register first; and how often each was measured."""
    texts = [outcome.replace(" ", "")[::-1] for outcome in answer.counts]
    rows = np.frombuffer("".join(texts).encode(), dtype=np.uint8).reshape(len(texts), -1) - ord("0")
    return rows, np.array(list(answer.counts.values()), dtype=np.int64)
