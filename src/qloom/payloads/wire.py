"""A payload on its way: a small head that everybody reads, and a body that only those who need it read.

The body travels as text, so that the broker's event loop forwards it without reading it. What the queue and the
devices have to know of it are its facts: found once, in a process with limits if the body is large.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from qloom.errors import PayloadError, QloomError
from qloom.model import JsonText, Payload, PayloadFacts, json_text
from qloom.payloads.circuit_use import MOST_GATES, pairs_of
from qloom.payloads.circuits import read_entries
from qloom.payloads.native import native_work, read_native
from qloom.payloads.openqasm3 import Circuit, check_rows, read_circuit, shape
from qloom.payloads.pulser import duration_ns, local_part, read_sequence, register_key
from qloom.payloads.qubo import read_qubo

LONGEST = 300  # characters of a refusal, or of a name in one, from the payload


def head_of(payload: Payload) -> dict[str, Any]:
    """Everything but the body."""
    return {
        "kind": payload.kind,
        "shots": payload.shots,
        "seconds": payload.seconds,
        "options": dict(payload.options),
        "facts": vars(facts_of(payload)),
    }


def payload_under(head: dict[str, Any], body: str) -> Payload:
    """The payload of a head and the text of its body."""
    facts = _facts_from(head["facts"])
    return Payload(head["kind"], JsonText(body), head["shots"], head["seconds"], options=head["options"], facts=facts)


def _facts_from(values: dict[str, Any]) -> PayloadFacts:
    """JSON has lists for tuples."""
    parts: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list | tuple) else value for name, value in values.items()
    }
    parts["pairs"] = tuple((int(u), int(v)) for u, v in parts.get("pairs", ()))
    return PayloadFacts(**parts)


def facts_of(payload: Payload) -> PayloadFacts:
    """What there is to know of the body, read at most once; raises `PayloadError` for one that cannot be read."""
    if payload.facts is None:
        object.__setattr__(payload, "facts", read_facts(payload.kind, payload.value))  # the value is the same
    assert payload.facts is not None  # noqa: S101
    return payload.facts


def read_facts(kind: str, body: Any) -> PayloadFacts:
    """Raises `PayloadError` for a body that is not of its kind, whatever it does to its reader."""
    reader = READERS.get(kind)
    if reader is None:
        return PayloadFacts()
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


def _qubo(body: Any) -> PayloadFacts:
    problem = read_qubo(body)
    uneven = max(problem.linear) - min(problem.linear) > 1e-9
    return PayloadFacts(
        size=len(problem.variables),
        local="the variables have different linear biases" if uneven else "",
        set_up=f"qubo:{hashlib.sha256(json_text(body).encode()).hexdigest()[:16]}",
    )


def _openqasm3(body: Any) -> PayloadFacts:
    entries = read_entries(body)
    read: dict[str, Circuit] = {}
    for entry in entries:
        if entry.template not in read:
            read[entry.template] = read_circuit(entry.template)
        check_rows(entry, read[entry.template])
    numbers = [len(entry.rows) for entry in entries]
    pairs = pairs_of(read.values())
    shapes = "-".join(f"{shape(entry.template)}x{number}" for entry, number in zip(entries, numbers, strict=True))
    return PayloadFacts(
        size=max(found.size for found in read.values()),
        used=max(found.used for found in read.values()),
        gates=tuple(dict.fromkeys(gate for found in read.values() for gate in found.gates))[: MOST_GATES + 1],
        pairs=pairs or (),
        scattered=pairs is None or any(found.scattered or found.unplaced for found in read.values()),
        bits=max(found.bits for found in read.values()),
        operations=sum(read[entry.template].operations * len(entry.rows) for entry in entries),
        circuits=sum(numbers),
        set_up=f"openqasm3:{hashlib.sha256(shapes.encode()).hexdigest()[:16]}",
    )


def _pulser(body: Any) -> PayloadFacts:
    sequence = read_sequence(body)
    local = local_part(sequence)
    return PayloadFacts(
        size=len(sequence["register"]),
        used=len(sequence["register"]),
        channels=tuple(dict.fromkeys(str(channel)[:LONGEST] for channel in sequence["channels"].values())),
        duration_ns=duration_ns(sequence),
        local=f"the sequence drives atoms one by one ({local[:LONGEST]})" if local else "",
        set_up=f"pulser:{register_key(sequence)}",
    )


def _native(body: Any) -> PayloadFacts:
    circuits, shots = native_work(read_native(body)) or (1, 0)
    return PayloadFacts(circuits=circuits, shots=shots)


READERS: dict[str, Callable[[Any], PayloadFacts]] = {
    "qubo": _qubo,
    "openqasm3": _openqasm3,
    "pulser": _pulser,
    "qrmi": _native,
}
