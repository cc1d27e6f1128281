"""Pulser sequences as payloads: their abstract representation, with the values of their variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qloom.errors import PayloadError
from qloom.model import Payload


def adapt(sequence: Any, values: Any = None) -> Payload:
    """A `pulser.Sequence`; `values` are its run parameters by name, and `qubits` for a mappable register."""
    if not hasattr(sequence, "to_abstract_repr"):
        raise PayloadError(f"a Pulser {type(sequence).__name__} is no sequence", hint="give a pulser.Sequence")
    if values is not None and not isinstance(values, Mapping):
        raise PayloadError("the run parameters of a sequence are a table", hint='(sequence, {"name": value})')
    if values is None and (sequence.is_parametrized() or sequence.is_register_mappable()):
        names = ", ".join(sequence.declared_variables) or "qubits"
        raise PayloadError(f"the sequence has unbound parameters: {names}", hint="give (sequence, {name: value})")
    try:
        built = sequence.build(**dict(values)) if values else sequence
        body = built.to_abstract_repr()
    except Exception as error:  # Pulser has many kinds
        said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise PayloadError(f"the Pulser sequence cannot be written: {said}") from None
    return Payload("pulser", body, name="sequence")
