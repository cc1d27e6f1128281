"""Qiskit circuits as templates in OpenQASM 3 and exact numbers. The only module of this room that imports Qiskit.

A circuit gives the same text whatever its parameters are called and in whichever process it was made. Nothing is
compiled: gates that OpenQASM's standard library has, or that Qiskit defines in terms of it, stay as they are, and
others are written out by their definitions. The global phase is left out: no count depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister, qasm2, qasm3  # type: ignore[import, unused-ignore]
from qiskit.circuit import ControlFlowOp, ForLoopOp, Parameter, ParameterExpression  # type: ignore[import, unused-ignore]

from qloom.errors import PayloadError
from qloom.model import Payload
from qloom.payloads.circuits import CircuitRows, circuit_payload

PLAIN = ("measure", "reset", "barrier", "delay", "store")
INPUT = re.compile(r"^input float\[64\] (\w+);\n", re.MULTILINE)
NUMBER = re.compile(r"\b_n\d+\b")


@dataclass(frozen=True)
class CircuitTemplate:
    """A circuit written once; `rows` makes the numbers of its inputs from values of its parameters.

    A circuit without parameters has its own numbers as inputs, so that bound circuits of one ansatz share a template.
    In a circuit with parameters numbers stand in the text, and the inputs are its different angles: parameters, or
    expressions of parameters, which are computed here and not by whoever reads the text.
    """

    text: str
    parameters: tuple[Any, ...]  # of the circuit, in Qiskit's order
    angles: tuple[Any, ...]  # of each input: a number, a parameter or an expression

    def rows(self, values: Any = None) -> tuple[tuple[float, ...], ...]:
        """A row for each set of values: a mapping, or an array whose last axis is the parameters. None: no values."""
        names = [parameter.name for parameter in self.parameters]
        if values is None:
            if names:
                raise PayloadError(
                    f"the circuit has unbound parameters: {_listed(names)}", hint="give (circuit, values) instead"
                )
            return (tuple(float(angle) for angle in self.angles),)
        return tuple(self._row(one) for one in self._sets(values, names))

    def _sets(self, values: Any, names: list[str]) -> Iterable[dict[Any, float]]:
        if isinstance(values, Mapping):
            by_name = {getattr(key, "name", key): value for key, value in values.items()}
            unknown = [str(name) for name in by_name if name not in names]
            missing = [name for name in names if name not in by_name]
            if unknown or missing:
                raise PayloadError(
                    f"the circuit has no parameter {unknown[0]}" if unknown else f"no value for {_listed(missing)}",
                    hint=f"its parameters are {_listed(names)}",
                )
            values = [by_name[name] for name in names]
        try:
            table = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise PayloadError("values of parameters are numbers, or an array of them") from None
        if table.ndim == 0 or table.shape[-1] != len(names):
            wanted = f"the circuit has {len(names)} parameters"
            raise PayloadError(f"{wanted}, and values of shape {table.shape} were given", hint="one for each")
        if not np.isfinite(table).all():
            raise PayloadError("values of parameters must be finite numbers")
        return [dict(zip(self.parameters, one, strict=True)) for one in table.reshape(-1, len(names)).tolist()]

    def _row(self, values: dict[Any, float]) -> tuple[float, ...]:
        return tuple(_angle_value(angle, values) for angle in self.angles)


def _angle_value(angle: Any, values: dict[Any, float]) -> float:
    if isinstance(angle, Parameter):
        return values[angle]
    if isinstance(angle, ParameterExpression):
        angle = angle.bind({parameter: values[parameter] for parameter in angle.parameters})
    try:
        return float(angle)
    except TypeError:
        raise PayloadError(f"an angle of the circuit is {angle}, no real number") from None


def adapt(circuit: Any, values: Any = None) -> Payload:
    """A `QuantumCircuit` with the values of its parameters: one set, or an array of sets, one for each circuit."""
    if not isinstance(circuit, QuantumCircuit):
        raise PayloadError(f"a Qiskit {type(circuit).__name__} is no circuit", hint="give a QuantumCircuit")
    template = write_template(circuit)
    single = values is None or isinstance(values, Mapping) or np.ndim(values) == 1
    return circuit_payload([CircuitRows(template.text, template.rows(values))], single=single)


def read_openqasm2(text: str) -> QuantumCircuit:
    """The circuit of a text in OpenQASM 2; raises `PayloadError` with the line."""
    try:
        return qasm2.loads(text, custom_instructions=qasm2.LEGACY_CUSTOM_INSTRUCTIONS)
    except qasm2.QASM2ParseError as error:
        found = re.search(r"(\d+),\d+: (.*)", str(error).strip('"'))
        said = f"{found[2]} (line {found[1]})" if found else str(error)
        raise PayloadError(f"the OpenQASM 2 text cannot be read: {said[:300]}") from None


def write_template(circuit: QuantumCircuit) -> CircuitTemplate:
    """The template of a circuit; raises `PayloadError` for what OpenQASM 3 cannot say."""
    writer = _TemplateWriter(circuit)
    try:
        text = qasm3.dumps(writer.copy)
    except Exception as error:  # Qiskit has several kinds
        said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise PayloadError(f"the circuit cannot be written as OpenQASM 3: {said}") from None
    return CircuitTemplate(writer.finish(text), tuple(circuit.parameters), tuple(writer.angles))


class _TemplateWriter:
    """A copy of a circuit in which each angle is a name: of an input, or of a number that comes into the text."""

    def __init__(self, circuit: QuantumCircuit) -> None:
        self.angles: list[Any] = []  # of the inputs
        self._numbers: list[float] = []  # that stand in the text
        self._names: dict[str, Parameter] = {}
        self._bound = not circuit.parameters
        self._inputs: dict[Any, Parameter] = {}  # by the angle
        if any(True for _ in circuit.iter_input_vars()):
            raise PayloadError("the circuit has input variables", hint="use parameters, and give their values")
        self.copy = QuantumCircuit(QuantumRegister(name="q", bits=circuit.qubits), *_registers(circuit))
        for variable in circuit.iter_declared_vars():
            self.copy.add_uninitialized_var(variable)
        self._add(circuit, self.copy, circuit.qubits, circuit.clbits)

    def finish(self, text: str) -> str:
        """The text with its numbers, and with its inputs in the order of the angles."""
        found = INPUT.findall(text)
        if set(found) - set(self._names):
            raise PayloadError("a register of the circuit has a name that begins with _p or _n", hint="rename it")
        bare = NUMBER.sub(lambda name: repr(self._numbers[int(name[0][2:])]), INPUT.sub("", text))
        inputs = "".join(f"input float[64] _p{number};\n" for number in range(len(self.angles)))
        head, include, rest = bare.partition('include "stdgates.inc";\n')
        return f"{head}{include}{inputs}{rest}"

    def _add(self, circuit: Any, into: QuantumCircuit, qubits: Sequence[Any], clbits: Sequence[Any]) -> None:
        """Append a circuit's operations on these bits; a gate that OpenQASM does not know by what defines it."""
        places = dict(zip(circuit.qubits, qubits, strict=True)) | dict(zip(circuit.clbits, clbits, strict=True))
        for instruction in circuit.data:
            operation = instruction.operation
            on = [places[qubit] for qubit in instruction.qubits]
            to = [places[bit] for bit in instruction.clbits]
            if isinstance(operation, ControlFlowOp):
                into.append(self._control_flow(operation), on, to)
            elif operation.name in PLAIN:
                into.append(operation, on, to)
            elif instruction.is_standard_gate():
                if on:  # without qubits it is a phase of all of them
                    into.append(self._named(operation), on, to)
            elif (definition := getattr(operation, "definition", None)) is not None:
                self._add(definition, into, on, to)
            else:
                raise PayloadError(f"the circuit has an operation that cannot be written: {operation.name}")

    def _control_flow(self, operation: Any) -> Any:
        if isinstance(operation, ForLoopOp) and operation.params[1] is not None:
            raise PayloadError("the circuit has a loop over a parameter", hint="write the loop out")
        blocks = []
        for block in operation.blocks:
            copy = block.copy_empty_like()
            copy.global_phase = 0
            self._add(block, copy, block.qubits, block.clbits)
            blocks.append(copy)
        return operation.replace_blocks(blocks)

    def _named(self, gate: Any) -> Any:
        if not gate.params:
            return gate
        named = gate.to_mutable()
        named.params = [self._name(angle) for angle in gate.params]
        return named

    def _name(self, angle: Any) -> Parameter:
        symbolic = isinstance(angle, ParameterExpression) and bool(angle.parameters)
        if symbolic and angle in self._inputs:
            return self._inputs[angle]
        if symbolic or self._bound:
            name = self._parameter(f"_p{len(self.angles)}")
            self.angles.append(angle)
            if symbolic:
                self._inputs[angle] = name
            return name
        name = self._parameter(f"_n{len(self._numbers)}")
        self._numbers.append(_angle_value(angle, {}))
        return name

    def _parameter(self, name: str) -> Parameter:
        return self._names.setdefault(name, Parameter(name))


def _registers(circuit: QuantumCircuit) -> list[ClassicalRegister]:
    """The circuit's own if each bit is in one of them; else a single one of all bits."""
    bits = [bit for register in circuit.cregs for bit in register]
    if list(bits) == list(circuit.clbits):
        return list(circuit.cregs)
    if len(bits) == len(dict.fromkeys(bits)) == len(circuit.clbits):
        return list(circuit.cregs)
    return [ClassicalRegister(name="bits", bits=circuit.clbits)]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
