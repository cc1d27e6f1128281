"""Circuits of Qiskit's objects on their way to a QPU, through a job or through a broker.

A sampler, an estimator and a backend hand circuits to a `CircuitTransport` and get `StartedTask`s back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

from qloom.errors import InputError
from qloom.interop.qiskit.targets import qiskit_target
from qloom.interop.transport import BrokerTransport, PayloadTransport, StartedTask
from qloom.payloads.circuits import CircuitRows, circuit_payload

CIRCUITS_PER_TASK = 100  # of a broker


class CircuitTransport(Protocol):
    """Carries circuits to a QPU."""

    @property
    def target(self) -> Any:
        """Qiskit's `Target` of the QPU; None if it takes any circuit, or if it is not known which one it will be."""

    @property
    def seed(self) -> int:
        """What the transpiler is seeded with."""

    def start(self, entries: Sequence[CircuitRows], shots: int) -> Iterator[StartedTask]:
        """Hand circuits over as one task, which pays for one set-up, or as several where a task has a limit."""

    def close(self) -> None:
        """Let go of what the transport has opened."""


class CircuitTasks:
    """Circuits as payloads; `per_task` None puts all that come together in one task."""

    def __init__(self, payloads: PayloadTransport, per_task: int | None = None) -> None:
        if per_task is not None and per_task < 1:
            raise InputError(f"circuits_per_task must be at least 1, not {per_task}")
        self._payloads = payloads
        self._per_task = per_task
        self.seed = payloads.seed

    @cached_property
    def target(self) -> Any:
        """See `CircuitTransport.target`: of a device that does not compile."""
        device = self._payloads.describe("openqasm3")
        return None if device is None or device.compiles or device.target is None else qiskit_target(device.target)

    def start(self, entries: Sequence[CircuitRows], shots: int) -> Iterator[StartedTask]:
        """See `CircuitTransport.start`."""
        for part in [entries] if self._per_task is None else split(entries, self._per_task):
            yield self._payloads.start(circuit_payload(part, shots=shots, name="circuits"))

    def close(self) -> None:
        """See `CircuitTransport.close`."""
        self._payloads.close()


def broker_circuits(
    device: str | None, client: Any, *, circuits_per_task: int = CIRCUITS_PER_TASK, **options: Any
) -> CircuitTasks:
    """The way of circuits through a broker."""
    return CircuitTasks(BrokerTransport(device, client, name="qiskit", **options), circuits_per_task)


def split(entries: Sequence[CircuitRows], most: int) -> Iterator[list[CircuitRows]]:
    """The same circuits in the same order, in parts of at most so many."""
    part: list[CircuitRows] = []
    room = most
    for entry in entries:
        rows = entry.rows
        while rows:
            part.append(CircuitRows(entry.template, rows[:room]))
            rows, room = rows[room:], room - len(rows[:room])
            if not room:
                yield part
                part, room = [], most
    if part:
        yield part
