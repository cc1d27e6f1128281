"""Circuits made to fit a target, each once: the same circuit again comes from memory.

A circuit that already fits is left as it is. The transpiler is seeded, so that a resumed program makes the same
circuits again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from qiskit.transpiler import generate_preset_pass_manager  # type: ignore[import, unused-ignore]

from qloom.errors import PayloadError
from qloom.interop.qiskit.transport import CircuitTransport

T = TypeVar("T")
REMEMBERED = 64  # circuits
LEVEL = 2  # of optimisation: Qiskit's own default


@dataclass(frozen=True)
class Fitted:
    """A circuit that a device takes; `layout` says where its qubits went, None if it was left as it is."""

    circuit: Any
    layout: Any = None


class Prepared(Generic[T]):
    """What was made of each of the last circuits. Circuits can be changed, so they are compared, not their ids."""

    def __init__(self, prepare: Callable[[Any], T]) -> None:
        self._prepare = prepare
        self._kept: OrderedDict[int, tuple[Any, T]] = OrderedDict()

    def of(self, circuit: Any) -> T:
        """What was made of this circuit, now or before."""
        known = self._kept.get(id(circuit))
        if known is None or not _same(known[0], circuit):
            known = (circuit.copy(), self._prepare(circuit))
            self._kept[id(circuit)] = known
            if len(self._kept) > REMEMBERED:
                self._kept.popitem(last=False)
        return known[1]


def _same(one: Any, other: Any) -> bool:
    return bool(
        one.data == other.data
        and one.qubits == other.qubits
        and one.cregs == other.cregs
        and one.clbits == other.clbits
        and one.global_phase == other.global_phase
    )


class Compiler:
    """Makes circuits fit the target of a transport, which is asked for it when the first circuit comes."""

    def __init__(self, transport: CircuitTransport) -> None:
        self._transport = transport

    @cached_property
    def _passes(self) -> Any:
        target, seed = self._transport.target, self._transport.seed
        if target is None:
            return None
        return generate_preset_pass_manager(optimization_level=LEVEL, target=target, seed_transpiler=seed)

    def fit(self, circuit: Any) -> Fitted:
        """The circuit as the target takes it; without a target every circuit fits."""
        if self._passes is None or fits(circuit, self._transport.target):
            return Fitted(circuit)
        if circuit.num_qubits > self._transport.target.num_qubits:
            most = self._transport.target.num_qubits
            raise PayloadError(f"the circuit has {circuit.num_qubits} qubits, and the device has {most}")
        compiled = self._passes.run(circuit)
        return Fitted(compiled, compiled.layout)

    def in_native_gates(self, gates: Any) -> Any:
        """Gates on single qubits that stay where they are, as the target has them."""
        target = self._transport.target
        if target is None or fits(gates, target):
            return gates
        stay = list(range(gates.num_qubits))
        passes = generate_preset_pass_manager(1, target=target, initial_layout=stay, seed_transpiler=0)
        return passes.run(gates)


def fits(circuit: Any, target: Any) -> bool:
    """Whether every instruction of a circuit is one of the target's, on these qubits."""
    if target.num_qubits is not None and circuit.num_qubits > target.num_qubits:
        return False
    return _supported(circuit, list(range(circuit.num_qubits)), target)


def _supported(circuit: Any, places: list[int], target: Any) -> bool:
    place = dict(zip(circuit.qubits, places, strict=True))
    for instruction in circuit.data:
        on = tuple(place[qubit] for qubit in instruction.qubits)
        blocks = getattr(instruction.operation, "blocks", None)
        if blocks is not None:
            if not all(_supported(block, list(on), target) for block in blocks):
                return False
        elif instruction.name != "barrier" and not target.instruction_supported(instruction.name, on):
            return False
    return True
