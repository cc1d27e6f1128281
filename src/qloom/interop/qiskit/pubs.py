"""Pubs as Qiskit's primitives take them: what is wrong with one in a line, and its circuit with its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from qiskit import QuantumCircuit  # type: ignore[import, unused-ignore]
from qiskit.exceptions import QiskitError  # type: ignore[import, unused-ignore]

from qloom.errors import InputError, PayloadError
from qloom.payloads.circuits import CircuitRows
from qloom.payloads.qiskit import write_template

Values = np.ndarray[Any, np.dtype[np.float64]]  # a row for each point of a pub, a column for each parameter


def read_pubs(pubs: Iterable[Any], coerce: Callable[[Any], Any]) -> list[Any]:
    """Have Qiskit read each pub; raises `PayloadError` with its number."""
    if isinstance(pubs, QuantumCircuit):
        raise PayloadError("expected a list of pubs, got a QuantumCircuit", hint="run([circuit])")
    read = []
    for number, pub in enumerate(pubs):
        try:
            read.append(coerce(pub))
        except (ValueError, TypeError, QiskitError) as error:
            circuit = pub[0] if isinstance(pub, tuple | list) and pub else pub
            raise _refusal(number, circuit, " ".join(str(error).split())) from None
    return read


def _refusal(number: int, circuit: Any, said: str) -> PayloadError:
    hint = None
    if "number of values" in said and isinstance(circuit, QuantumCircuit):
        names = ", ".join(parameter.name for parameter in circuit.parameters)
        hint = f"give each parameter of the circuit a value: {names}"
    elif "qubits of the circuit" in said:
        hint = "for a circuit that you have transpiled: observable.apply_layout(circuit.layout)"
    return PayloadError(f"pub {number}: {said[:300].rstrip('.')}", hint=hint)


def require_measurement(circuit: Any, number: int) -> None:
    """Raise `PayloadError` for a circuit that measures nothing: its counts would say nothing."""
    if not any(instruction.name == "measure" or instruction.is_control_flow() for instruction in circuit.data):
        raise PayloadError(f"pub {number}: the circuit measures nothing", hint="circuit.measure_all()")


def values_of(pub: Any, number: int) -> Values:
    """The values of a pub, in the order of its circuit's parameters."""
    parameters = list(pub.circuit.parameters)
    points = int(np.prod(pub.parameter_values.shape))
    try:
        values = pub.parameter_values.as_array(parameters).reshape(points, len(parameters))
    except ValueError as error:
        raise PayloadError(f"pub {number}: {error}", hint="values go by the names of the parameters") from None
    return np.asarray(values)


def whole_shots(shots: Any) -> int:
    """Shots as a whole number of at least 1."""
    if isinstance(shots, bool) or not isinstance(shots, int | np.integer) or shots < 1:
        raise InputError(f"shots must be a whole number of at least 1, not {shots!r}")
    return int(shots)


class ParametrisedCircuit:
    """A circuit as it is sent, and the parameters of the circuit that it was made from.

    A compiler may have done away with some of them.
    """

    def __init__(self, circuit: Any, origin: Any) -> None:
        self._template = write_template(circuit)
        column = {parameter: number for number, parameter in enumerate(origin.parameters)}
        self._columns = [column[parameter] for parameter in self._template.parameters]

    def entry(self, values: Values) -> CircuitRows:
        """The circuit for each row of values."""
        if self._columns:
            return CircuitRows(self._template.text, self._template.rows(values[:, self._columns]))
        return CircuitRows(self._template.text, self._template.rows() * len(values))

    def single(self) -> CircuitRows:
        """The circuit once, if it has no parameters."""
        return CircuitRows(self._template.text, self._template.rows())
