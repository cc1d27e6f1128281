"""The check of an envelope against a device's description, and what is read off an envelope beside it."""

from __future__ import annotations

import hashlib
import json
import math

from qloom.broker.devices.base import Description, Envelope
from qloom.broker.devices.payloads.openqasm3 import circuits, read_circuit, shape
from qloom.broker.devices.payloads.pulser import local_part, read_sequence, register_key
from qloom.broker.devices.payloads.qubo import read_qubo
from qloom.errors import PayloadError

WORDS = {"qubo": ("QUBO", "variables"), "openqasm3": ("circuit", "qubits"), "pulser": ("Pulser sequence", "atoms")}


def check_envelope(description: Description, envelope: Envelope) -> None:
    """Raise `PayloadError` for what this device cannot take; the reason names both sizes if it is too large."""
    check_frame(description, envelope)
    if envelope.kind == "qubo":
        problem = read_qubo(envelope.body)
        _fits(description, "qubo", len(problem.variables))
        if not description.local_addressing and max(problem.linear) - min(problem.linear) > 1e-9:
            raise _no_local_addressing(description, "the variables have different linear biases")
    elif envelope.kind == "openqasm3":
        for text in circuits(envelope.body):
            _fits(description, "openqasm3", read_circuit(text).size)
    elif envelope.kind == "pulser":
        sequence = read_sequence(envelope.body)
        _fits(description, "pulser", len(sequence["register"]))
        local = local_part(sequence)
        if local is not None and not description.local_addressing:
            raise _no_local_addressing(description, f"the sequence drives atoms one by one ({local})")


def check_frame(description: Description, envelope: Envelope) -> None:
    """What holds for every kind: the kind itself, shots, seconds and options."""
    if envelope.kind not in description.payloads:
        takes = ", ".join(description.payloads)
        raise PayloadError(f"{description.name} takes {takes}, not {envelope.kind!r}")
    shots, seconds = envelope.shots, envelope.seconds
    if isinstance(shots, bool) or not isinstance(shots, int) or shots < 1:
        raise PayloadError(f"shots must be a whole number of at least 1, not {shots!r}")
    if shots > description.max_shots:
        raise PayloadError(f"the task has {shots} shots, {description.name} takes up to {description.max_shots}")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float)):
        raise PayloadError(f"seconds must be a number, not {type(seconds).__name__}")
    if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
        raise PayloadError(f"a task cannot take {seconds} seconds")
    if envelope.kind == "delay" and seconds is None:
        raise PayloadError("a delay must say its seconds")
    if not isinstance(envelope.options, dict):
        raise PayloadError(f"options must be a table, not {type(envelope.options).__name__}")


def seconds_of(description: Description, envelope: Envelope) -> float:
    """Set-up + circuits x shots x seconds per shot.

    An emulated device takes as long as the envelope says, if it says so. Nobody can tell a vendor's machine how long
    to take, so there the envelope's seconds mean nothing.
    """
    if envelope.seconds is not None and description.emulated:
        return float(envelope.seconds)
    several = len(envelope.body) if envelope.kind == "openqasm3" and isinstance(envelope.body, list | tuple) else 1
    return description.set_up_s + several * envelope.shots * description.per_shot_s


def set_up_key_of(envelope: Envelope) -> str | None:
    """The same problem, the same circuit whatever its angles, the same register of atoms."""
    if envelope.kind == "qubo":
        text = json.dumps(envelope.body, sort_keys=True, default=str)
        return f"qubo:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if envelope.kind == "openqasm3":
        return "openqasm3:" + "-".join(shape(text) for text in circuits(envelope.body))
    if envelope.kind == "pulser":
        return f"pulser:{register_key(read_sequence(envelope.body))}"
    return None


def _fits(description: Description, kind: str, size: int) -> None:
    if size > description.qubits:
        what, unit = WORDS[kind]
        raise PayloadError(f"the {what} has {size} {unit}, {description.name} takes up to {description.qubits}")


def _no_local_addressing(description: Description, why: str) -> PayloadError:
    return PayloadError(
        f"{why}, and {description.name} has no local addressing",
        hint="treat all alike, or use a device with local addressing",
    )
