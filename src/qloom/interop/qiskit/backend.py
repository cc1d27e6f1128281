"""A Qiskit backend: for code that transpiles to a backend and calls `backend.run`.

The circuits of one call of `run` are one task. A circuit that fits the device is run as it is; another one is
transpiled first, as by the sampler and the estimator.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from qiskit import QuantumCircuit  # type: ignore[import, unused-ignore]
from qiskit.circuit.library import get_standard_gate_name_mapping  # type: ignore[import, unused-ignore]
from qiskit.providers import BackendV2, JobV1, Options  # type: ignore[import, unused-ignore]
from qiskit.result import Result  # type: ignore[import, unused-ignore]
from qiskit.result.models import ExperimentResult, ExperimentResultData  # type: ignore[import, unused-ignore]
from qiskit.transpiler import Target  # type: ignore[import, unused-ignore]

from qloom.answers import Counts
from qloom.errors import InputError, PayloadError
from qloom.interop.qiskit.bits import check_counts
from qloom.interop.qiskit.compiling import Compiler, Prepared
from qloom.interop.qiskit.jobs import overall_status
from qloom.interop.qiskit.pubs import ParametrisedCircuit, require_measurement, whole_shots
from qloom.interop.qiskit.sampler import DEFAULT_SHOTS
from qloom.interop.qiskit.transport import CircuitTransport, broker_circuits
from qloom.interop.transport import StartedTask
from qloom.version import __version__

ANY_SIZE = 1000  # qubits of a device that does not say how many it has: Qiskit wants a number


class QloomBackendV2(BackendV2):  # type: ignore[misc, unused-ignore]
    """A QPU as a backend, through a broker or through a job (`job.qiskit_backend()`).

    The arguments are those of `QloomSamplerV2`.
    """

    def __init__(
        self,
        device: str | None = None,
        client: Any = None,
        *,
        default_shots: int = DEFAULT_SHOTS,
        transport: CircuitTransport | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name=device or "qpu", backend_version=__version__, shots=whole_shots(default_shots))
        self._transport = transport or broker_circuits(device, client, **options)
        compiler = Compiler(self._transport)
        self._any_circuit = _any_circuit()
        self._circuits = Prepared(lambda circuit: ParametrisedCircuit(compiler.fit(circuit).circuit, circuit))

    @classmethod
    def _default_options(cls) -> Any:
        return Options(shots=DEFAULT_SHOTS)

    @property
    def target(self) -> Any:
        """Qubits, couplings and gates of the device; of a device that takes any circuit, all standard gates."""
        return self._transport.target or self._any_circuit

    @property
    def max_circuits(self) -> None:
        """A task may have any number of circuits."""
        return None

    def run(self, run_input: Any, **options: Any) -> QloomBackendJob:
        """Run a circuit or a list of circuits for `shots`; with `memory=True` the result has each shot too."""
        wanted = options.pop("shots", None)
        shots = whole_shots(self.options.shots if wanted is None else wanted)
        memory = bool(options.pop("memory", False))
        unknown = [name for name, value in options.items() if value is not None]
        if unknown:
            raise InputError(f"run takes no option {unknown[0]!r}", hint="it takes shots and memory")
        circuits = [run_input] if isinstance(run_input, QuantumCircuit) else list(run_input)
        if not circuits:
            raise PayloadError("there is no circuit to run")
        entries = [self._entry(circuit, number) for number, circuit in enumerate(circuits)]
        return QloomBackendJob(self, list(self._transport.start(entries, shots)), circuits, shots, memory)

    def _entry(self, circuit: Any, number: int) -> Any:
        require_measurement(circuit, number)
        if circuit.num_parameters:
            names = ", ".join(parameter.name for parameter in circuit.parameters)
            raise PayloadError(f"circuit {number} has parameters without values: {names}")
        return self._circuits.of(circuit).single()


class QloomBackendJob(JobV1):  # type: ignore[misc, unused-ignore]
    """The circuits of one call of `run`. A synchronous program calls `.result()`, an asynchronous one awaits it."""

    def __init__(
        self, backend: Any, tasks: Sequence[StartedTask], circuits: Sequence[Any], shots: int, memory: bool
    ) -> None:
        super().__init__(backend, tasks[0].id)
        self._tasks = tasks
        self._circuits = circuits
        self._shots = shots
        self._memory = memory

    def submit(self) -> None:
        """The circuits were handed over when the job was made."""

    def result(self) -> Any:
        """Wait for the counts of all circuits."""
        answers = [answer for task in self._tasks for answer in task.result()]
        results = [
            _experiment(circuit, check_counts(answer, circuit.num_clbits, self._shots), self._memory)
            for circuit, answer in zip(self._circuits, answers, strict=True)
        ]
        return Result(
            backend_name=self.backend().name,
            backend_version=__version__,
            job_id=self.job_id(),
            success=True,
            results=results,
        )

    def __await__(self) -> Generator[Any, None, Any]:
        for task in self._tasks:
            yield from task.__await__()
        return self.result()

    def status(self) -> Any:
        """One of Qiskit's `JobStatus`."""
        return overall_status([task.state() for task in self._tasks])

    def cancel(self) -> bool:
        """Take the task back; whether it was taken back."""
        return any([task.cancel() for task in self._tasks])  # noqa: C419  all of them


def _experiment(circuit: Any, answer: Counts, memory: bool) -> Any:
    """One circuit of a `Result`, which has outcomes as numbers and says how to write them as bits of registers."""
    names = [register.name for register in circuit.cregs] if len(answer.registers) == len(circuit.cregs) else ["bits"]
    sizes = [[name, size] for name, (_, size) in zip(names, answer.registers, strict=True)]
    counts = {hex(int(outcome.replace(" ", ""), 2)): number for outcome, number in answer.counts.items()}
    data: dict[str, Any] = {"counts": counts}
    if memory:  # counts have no order: equal shots lie together
        data["memory"] = [outcome for outcome, number in counts.items() for _ in range(number)]
    header = {
        "name": circuit.name,
        "creg_sizes": sizes,
        "memory_slots": circuit.num_clbits,
        "metadata": circuit.metadata,
    }
    return ExperimentResult(answer.shots, True, ExperimentResultData(**data), header=header)


def _any_circuit() -> Any:
    target = Target(description="takes any circuit", num_qubits=ANY_SIZE)
    for gate in get_standard_gate_name_mapping().values():
        target.add_instruction(gate)
    return target
