"""OpenQASM 3 text in a payload: read once from end to end, run by nobody.

What decides how much a circuit takes is counted beforehand (`statements.py`). Solvers compile with the language's own
parser, under limits of memory and time, and compare what they got with the same limits.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from qloom.errors import PayloadError
from qloom.payloads.statements import HINT, Circuit, CircuitReader
from qloom.payloads.tokens import Tokens

__all__ = ["Circuit", "circuits", "read_circuit", "shape"]
LONGEST = 4_000_000  # characters


def circuits(body: Any) -> list[str]:
    """The texts in a body: one, or several that share one set-up."""
    texts = body if isinstance(body, list | tuple) else [body]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise PayloadError("an OpenQASM 3 payload is text, or a list of texts", hint=HINT)
    return list(texts)


def read_circuit(text: str) -> Circuit:
    """Check one text; raises `PayloadError` with the line."""
    if len(text) > LONGEST:
        raise PayloadError(f"the circuit has {len(text)} characters, at most {LONGEST} are taken")
    found = CircuitReader(Tokens(text)).read()
    if not found.size:
        raise PayloadError("the circuit declares no qubits", hint=HINT)
    if not found.measured:
        raise PayloadError("the circuit measures nothing", hint="c = measure q;")
    return found


def shape(text: str) -> str:
    """A digest of the circuit without its angles: the same for the same circuit with new parameters."""
    bare = re.sub(r"\s+", " ", re.sub(r"\([^()]*\)", "()", text))
    return hashlib.sha256(bare.encode(errors="replace")).hexdigest()[:16]
