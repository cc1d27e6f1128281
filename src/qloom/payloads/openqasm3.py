"""OpenQASM 3 text in a payload: read once from end to end, run by nobody.

What decides how much a circuit takes is counted beforehand (`statements.py`, `names.py`). Solvers compile with the
language's own parser, under limits of memory and time, and compare what they got with the same limits.
"""

from __future__ import annotations

import functools
import hashlib
import re

from qloom.errors import PayloadError
from qloom.payloads.circuit_use import Circuit
from qloom.payloads.circuits import CircuitRows
from qloom.payloads.statements import HINT, CircuitReader
from qloom.payloads.tokens import Tokens

__all__ = ["Circuit", "check_rows", "read_circuit", "shape"]
LONGEST = 4_000_000  # characters
SHORT, KEPT = 50_000, 64  # characters of a text whose facts are kept, and how many texts


def read_circuit(text: str) -> Circuit:
    """Check one text; raises `PayloadError` with the line. A short text that was read before is known."""
    if len(text) > LONGEST:
        raise PayloadError(f"the circuit has {len(text)} characters, at most {LONGEST} are taken")
    return _read_again(text) if len(text) <= SHORT else _read(text)


def _read(text: str) -> Circuit:
    found = CircuitReader(Tokens(text)).read()
    if not found.size:
        raise PayloadError("the circuit declares no qubits", hint=HINT)
    if not found.measured:
        raise PayloadError("the circuit measures nothing", hint="c = measure q; or circuit.measure_all()")
    return found


_read_again = functools.lru_cache(KEPT)(_read)  # a loop sends one template many times


def check_rows(entry: CircuitRows, found: Circuit) -> None:
    """Each row must have a value for each input of the template."""
    for row in entry.rows:
        if found.inputs and not row:
            names = ", ".join(found.inputs[:5])
            raise PayloadError(f"the circuit has unbound parameters: {names}", hint="give (circuit, values) instead")
        if len(row) != len(found.inputs):
            raise PayloadError(f"the circuit has {len(found.inputs)} inputs, and {len(row)} values were given")


def shape(text: str) -> str:
    """A digest of the circuit without its angles: the same for the same circuit with new parameters."""
    bare = re.sub(r"\s+", " ", re.sub(r"\([^()]*\)", "()", text))
    return hashlib.sha256(bare.encode(errors="replace")).hexdigest()[:16]
