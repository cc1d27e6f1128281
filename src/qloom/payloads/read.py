"""Reads a body once, for what every check needs to know of it. May be run in a process with limits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from qloom.errors import PayloadError, QloomError
from qloom.payloads.envelope import Facts, json_text
from qloom.payloads.native import native_work, read_native
from qloom.payloads.openqasm3 import Circuit, circuits, read_circuit, shape
from qloom.payloads.pulser import duration_ns, local_part, read_sequence, register_key
from qloom.payloads.qubo import read_qubo

LONGEST = 300  # characters of a refusal: it may repeat a name from the payload


def read_facts(kind: str, body: Any) -> Facts:
    """Raises `PayloadError` for a body that is not of its kind, whatever it does to its reader."""
    reader = READERS.get(kind)
    if reader is None:
        return Facts()
    try:
        return reader(body)
    except QloomError as error:
        if len(error.message) <= LONGEST:
            raise
        raise PayloadError(f"{error.message[:LONGEST]}...", hint=error.hint) from None
    except RecursionError:
        raise PayloadError("the payload is nested too deeply", hint="write it with fewer levels") from None
    except MemoryError:
        raise PayloadError("reading the payload takes more memory than it may", hint="send a smaller one") from None
    except Exception as error:
        raise PayloadError(f"the payload cannot be read ({type(error).__name__})") from None


def _qubo(body: Any) -> Facts:
    problem = read_qubo(body)
    uneven = max(problem.linear) - min(problem.linear) > 1e-9
    return Facts(
        size=len(problem.variables),
        local="the variables have different linear biases" if uneven else "",
        set_up=f"qubo:{hashlib.sha256(json_text(body).encode()).hexdigest()[:16]}",
    )


def _openqasm3(body: Any) -> Facts:
    texts = circuits(body)
    read: dict[str, Circuit] = {}
    for text in texts:
        if text not in read:
            read[text] = read_circuit(text)
    shapes = hashlib.sha256("-".join(shape(text) for text in texts).encode()).hexdigest()[:16]
    return Facts(
        size=max(found.size for found in read.values()),
        bits=max(found.bits for found in read.values()),
        operations=sum(read[text].operations for text in texts),
        circuits=len(texts),
        set_up=f"openqasm3:{shapes}",
    )


def _pulser(body: Any) -> Facts:
    sequence = read_sequence(body)
    local = local_part(sequence)
    return Facts(
        size=len(sequence["register"]),
        duration_ns=duration_ns(sequence),
        local=f"the sequence drives atoms one by one ({local})" if local else "",
        set_up=f"pulser:{register_key(sequence)}",
    )


def _native(body: Any) -> Facts:
    circuits, shots = native_work(read_native(body)) or (1, 0)
    return Facts(circuits=circuits, shots=shots)


READERS: dict[str, Callable[[Any], Facts]] = {
    "qubo": _qubo,
    "openqasm3": _openqasm3,
    "pulser": _pulser,
    "qrmi": _native,
}
