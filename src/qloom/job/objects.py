"""The objects that a job hands out for code that is written against other libraries.

Each call through one is a call of the job: scheduled by the strategy, kept in the journal, recalled by a resumed run.
The objects themselves are in `qloom.interop`; nothing of it is imported before it is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from qloom.device import Description
from qloom.errors import InputError

if TYPE_CHECKING:
    from qloom.interop.futures import OpenFutures
    from qloom.interop.transport import CallHandle, JobTransport


class Closable(Protocol):
    """An object of a job that may have results outstanding when the program returns."""

    def close(self) -> None:
        """Wait for the results that somebody still has."""


class JobObjects(ABC):
    """What a `Job` and a `SyncJob` have in common: objects of other libraries."""

    waits = False  # whether calls of the program wait, so that an object without `await` can be used
    seed: int

    @abstractmethod
    def _begin_quantum(self, payload: Any, **options: Any) -> CallHandle:
        """Start a quantum call."""

    @abstractmethod
    def describe_device(self, kind: str, device: str | None = None) -> Description | None:
        """The device that payloads of a kind go to, chosen now if none is named; None if no device takes them."""

    def qiskit_sampler(self, device: str | None = None, **options: Any) -> Any:
        """A Qiskit `BaseSamplerV2` whose pubs are quantum calls of this job; options: `default_shots`."""
        _require("qiskit", "qiskit")
        from qloom.interop.qiskit import QloomSamplerV2

        return QloomSamplerV2(transport=self._circuits(device), **options)

    def qiskit_estimator(self, device: str | None = None, **options: Any) -> Any:
        """A Qiskit `BaseEstimatorV2` of this job; options: `default_precision` or `default_shots`."""
        _require("qiskit", "qiskit")
        from qloom.interop.qiskit import QloomEstimatorV2

        return QloomEstimatorV2(transport=self._circuits(device), **options)

    def qiskit_backend(self, device: str | None = None, **options: Any) -> Any:
        """A Qiskit `BackendV2` of this job; options: `default_shots`."""
        _require("qiskit", "qiskit")
        from qloom.interop.qiskit import QloomBackendV2

        return QloomBackendV2(device, transport=self._circuits(device), **options)

    def dimod_sampler(self, device: str | None = None) -> Any:
        """A `dimod.Sampler` of this job; of a device with a graph it is a structured one."""
        self._require_waits("a dimod sampler", "(await job.quantum(bqm)).to_dimod()")
        from qloom.interop.dimod import QloomSampler, QloomStructuredSampler, has_graph

        chosen = self.describe_device("qubo", device)
        if chosen is not None and has_graph(chosen):
            sampler: QloomSampler = QloomStructuredSampler(transport=self.payload_transport(chosen.name))
        else:
            sampler = QloomSampler(transport=self.payload_transport(device))
        self._handed_out.append(sampler)
        return sampler

    @cached_property
    def _handed_out(self) -> list[Closable]:
        return []

    def close_objects(self) -> None:
        """Wait for what the program returns and has not looked at yet."""
        for each in self._handed_out:
            each.close()

    def pulser_backend(self, sequence: Any, device: str | None = None, **options: Any) -> Any:
        """A Pulser backend for a sequence, whose jobs are quantum calls; options: `config`, `mimic_qpu`."""
        self._require_waits("a Pulser backend", "await job.quantum(sequence)")
        _require("pulser", "pulser")
        from qloom.interop.pulser import DEFAULT_RUNS, JobConnection, QloomBackend

        connection = JobConnection(self.payload_transport(device), self.quantum_block, DEFAULT_RUNS)
        return QloomBackend(sequence, connection, **options)

    @abstractmethod
    def quantum_block(self) -> Any:
        """Keep one hold of the QPU over all quantum tasks inside."""

    def pennylane_device(self, wires: Any = None, device: str | None = None) -> Any:
        """A PennyLane device of this job; shots are those of a QNode: `qml.set_shots(qnode, 1000)`."""
        self._require_waits("a PennyLane device", "job.quantum(...)")
        _require("pennylane", "pennylane")
        from qloom.interop.pennylane import QloomDevice

        return QloomDevice(wires, transport=self._circuits(device))

    def executor(self, **needs: Any) -> Any:
        """A `concurrent.futures.Executor` on the nodes of this job; `needs` are those of each task."""
        self._require_waits("an executor", "await job.classical(call(function, ...))")
        from qloom.interop.futures import JobExecutor

        return JobExecutor(self.open_futures(), needs)

    def joblib_backend(self, **needs: Any) -> Any:
        """A joblib backend on the nodes of this job: `with joblib.parallel_config(backend=...):`."""
        self._require_waits("a joblib backend", "await job.classical(call(function, ...))")
        _require("joblib", "joblib")
        from qloom.interop.joblib import JoblibBackend

        return JoblibBackend(self.open_futures(), **needs)

    @abstractmethod
    def open_futures(self) -> OpenFutures:
        """The futures of this job that have not ended."""

    def payload_transport(self, device: str | None = None) -> JobTransport:
        """The way of payloads through this job, for objects of other libraries."""
        from qloom.interop.transport import JobTransport

        return JobTransport(self._begin_quantum, self.describe_device, device, self.seed)

    def _circuits(self, device: str | None) -> Any:
        from qloom.interop.qiskit.transport import CircuitTasks

        return CircuitTasks(self.payload_transport(device))

    def _require_waits(self, what: str, instead: str) -> None:
        if not self.waits:
            raise InputError(f"{what} waits, which an async program must not", hint=f"write def, or {instead}")


def _require(module: str, extra: str) -> None:
    if find_spec(module) is None:
        raise InputError(f"{module}: not installed", hint=f"pip install 'qloom[{extra}]'")
