"""What a quantum call returns: small values that are the same in every world and lie in the journal as JSON.

A program reads them as they are; `to_dimod` and `to_qiskit` make what users of those libraries expect. This module
knows no payload and no device, and imports a library only when it is asked for an object of that library.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from qloom.errors import InputError

Register = tuple[str, int]  # its name and how many bits it has
NO_CONTENT = {"qloom_content": False}  # of a field that is no part of what a value is: equal answers may differ in it


@dataclass(frozen=True)
class Sample:
    """One assignment of a QUBO: a value (0 or 1) for each variable, and its energy."""

    values: Mapping[Any, int]
    energy: float
    calibration: str | None = field(default=None, compare=False, kw_only=True, metadata=NO_CONTENT)  # of the device
    device_s: float | None = field(default=None, compare=False, kw_only=True, metadata=NO_CONTENT)  # it took there

    @property
    def samples(self) -> Sequence[Sample]:
        """All that is known: this one."""
        return (self,)

    @property
    def best(self) -> Sample:
        """The sample with the lowest energy."""
        return self


@dataclass(frozen=True, eq=False)
class Samples(Sample):
    """The answer to a QUBO: every different sample with its energy, best first. It reads as its best sample.

    `rows` has a text of bits for each sample, in the order of `variables`. `shots` says how many samples were drawn:
    more than `occurrences` add up to if a device returned only the best of very many.
    """

    rows: tuple[str, ...]
    energies: tuple[float, ...]
    occurrences: tuple[int, ...]
    shots: int
    vartype: str = "BINARY"  # of the model that was asked about; `values` and `rows` have bits all the same

    @property
    def variables(self) -> tuple[Any, ...]:
        """The labels of the variables."""
        return tuple(self.values)

    @property
    def samples(self) -> Sequence[Sample]:
        """Each different sample, best first; `occurrences` has how often each was drawn."""
        names = self.variables
        return [
            Sample(dict(zip(names, map(int, row), strict=True)), energy)
            for row, energy in zip(self.rows, self.energies, strict=True)
        ]

    @property
    def best(self) -> Sample:
        """The sample with the lowest energy."""
        return Sample(self.values, self.energy)

    def to_dimod(self) -> Any:
        """A `dimod.SampleSet` in the vartype of the model that was asked about."""
        dimod: Any = importlib.import_module("dimod")
        numpy: Any = importlib.import_module("numpy")
        bits = numpy.array([[int(bit) for bit in row] for row in self.rows], dtype=numpy.int8)
        table = bits.reshape(len(self.rows), len(self.values))
        return dimod.SampleSet.from_samples(
            (2 * table - 1 if self.vartype == "SPIN" else table, list(self.values)),
            vartype=self.vartype,
            energy=list(self.energies),
            num_occurrences=list(self.occurrences),
        )

    def __eq__(self, other: object) -> bool:
        """Another answer is compared as a whole, a single sample with the best one."""
        if isinstance(other, Samples):
            compared = [each.name for each in fields(self) if each.compare]
            return all(getattr(self, name) == getattr(other, name) for name in compared)
        if isinstance(other, Sample):
            return self.best == other
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a sample: a mapping has none


@dataclass(frozen=True)
class Counts:
    """The answer to one circuit: how often each outcome of all its classical bits together was measured.

    An outcome is written as Qiskit writes it: bit 0 of a register stands at its right end, registers are separated by
    a blank, and the register that the circuit declares first stands last. `registers` has the circuit's order.
    """

    counts: Mapping[str, int]
    registers: tuple[Register, ...]
    shots: int
    calibration: str | None = field(default=None, compare=False, kw_only=True, metadata=NO_CONTENT)  # of the device
    device_s: float | None = field(default=None, compare=False, kw_only=True, metadata=NO_CONTENT)  # it took there

    def of(self, register: str) -> dict[str, int]:
        """The counts of one register, whatever the others had."""
        names = [name for name, _ in self.registers]
        if register not in names:
            raise InputError(f"the circuit has no register {register!r}", hint=f"it has {', '.join(names) or 'none'}")
        place = len(names) - 1 - names.index(register)
        found: dict[str, int] = {}
        for outcome, number in self.counts.items():
            bits = outcome.split(" ")[place]
            found[bits] = found.get(bits, 0) + number
        return dict(sorted(found.items()))

    def to_qiskit(self) -> Any:
        """A `SamplerPubResult` with a `BitArray` for each register; the bits of one shot stay together."""
        return pub_result([self])


@dataclass(frozen=True)
class AtomCounts:
    """The answer to a Pulser sequence: how often each bit string was measured; bit i from the left is atom i."""

    counts: Mapping[str, int]
    atoms: tuple[str, ...]
    shots: int
    calibration: str | None = field(default=None, compare=False, kw_only=True, metadata=NO_CONTENT)  # of the device
    device_s: float | None = field(default=None, compare=False, kw_only=True, metadata=NO_CONTENT)  # it took there


Answer = Sample | Counts | AtomCounts


def executed(answer: Any, calibration: str | None, device_s: float | None = None) -> Any:
    """The same answer, of several circuits all of them, with how the device that gave it executed the task."""
    if calibration is None and device_s is None:
        return answer
    if isinstance(answer, list | tuple):
        return type(answer)(executed(each, calibration, device_s) for each in answer)
    if not isinstance(answer, Answer):
        return answer
    return replace(answer, calibration=calibration, device_s=device_s)


def pub_result(
    answers: Sequence[Counts], shape: tuple[int, ...] = (), metadata: Mapping[str, Any] | None = None
) -> Any:
    """Circuits of the same registers as one `SamplerPubResult` of that shape, in the order of a flattened array.

    Counts have no order of shots. Equal outcomes must not lie together, or a part of the shots would be no fair
    sample, so shots are put in an order that looks random and depends on nothing but their number.
    """
    numpy: Any = importlib.import_module("numpy")
    containers: Any = importlib.import_module("qiskit.primitives.containers")
    shots = answers[0].shots
    order = numpy.random.default_rng(shots).permutation(shots)
    tables = numpy.stack([_shot_table(numpy, answer)[order] for answer in answers])
    data, first = {}, 0
    for name, size in answers[0].registers:
        bits = tables[:, :, first : first + size].reshape(*shape, shots, size)
        data[name] = containers.BitArray.from_bool_array(bits, order="little")
        first += size
    found = containers.DataBin(**data, shape=shape)
    return containers.SamplerPubResult(found, metadata={"shots": shots, **(metadata or {})})


def _shot_table(numpy: Any, answer: Counts) -> Any:
    """A row for each shot; column 0 is bit 0 of the first register."""
    width = sum(size for _, size in answer.registers)
    texts = "".join(outcome.replace(" ", "")[::-1] for outcome in answer.counts)
    rows = (numpy.frombuffer(texts.encode(), dtype=numpy.uint8) == ord("1")).reshape(len(answer.counts), width)
    return numpy.repeat(rows, list(answer.counts.values()), axis=0)
