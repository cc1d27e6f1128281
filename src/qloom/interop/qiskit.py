"""A Qiskit sampler through the broker: `QloomSamplerV2()` in place of any other `SamplerV2`.

Each pub becomes tasks of OpenQASM 3 text, all of them queued when `run` returns. The job that it returns is a
handle on those tasks: it can be asked, awaited and cancelled.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister, qasm3  # type: ignore[import, unused-ignore]
from qiskit.primitives import (  # type: ignore[import, unused-ignore]
    BasePrimitiveJob,
    BaseSamplerV2,
    BitArray,
    DataBin,
    PrimitiveResult,
    SamplerPubResult,
)
from qiskit.primitives.containers.sampler_pub import SamplerPub  # type: ignore[import, unused-ignore]
from qiskit.providers import JobStatus  # type: ignore[import, unused-ignore]

from qloom.broker.client.sync import SyncBrokerClient
from qloom.broker.queue.task import FINAL
from qloom.errors import InputError, PayloadError, QuantumFailed

DEFAULT_SHOTS = 1024  # as Qiskit's own samplers have it


@dataclass(frozen=True)
class _Sent:
    """A pub, and the tasks that run its circuits in order."""

    pub: Any
    tasks: tuple[str, ...]


class QloomSamplerV2(BaseSamplerV2):  # type: ignore[misc, unused-ignore]
    """Sends circuits to a QPU of a broker; `device=None` takes the one with the least to do.

    The circuits of a pub with many parameter values share a task, up to `circuits_per_task`, and with it one set-up.
    `seed` is for emulated devices.
    """

    def __init__(
        self,
        device: str | None = None,
        client: SyncBrokerClient | None = None,
        *,
        session: str | None = None,
        default_shots: int = DEFAULT_SHOTS,
        circuits_per_task: int = 100,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        if circuits_per_task < 1:
            raise InputError(f"circuits_per_task must be at least 1, not {circuits_per_task}")
        self._where = {"device": device, "session": session, "name": "qiskit"}
        self._options = {} if seed is None else {"seed": seed}
        self._shots = default_shots
        self._per_task = circuits_per_task
        self._own = client is None
        self._client = client or SyncBrokerClient(**options)

    def run(self, pubs: Iterable[Any], *, shots: int | None = None) -> QloomJob:
        """Queue the pubs: circuits, or tuples of a circuit, parameter values and shots."""
        coerced = [SamplerPub.coerce(pub, self._shots if shots is None else shots) for pub in pubs]
        texts = [_export(pub, number) for number, pub in enumerate(coerced)]  # all can be written before one is sent
        tasks: list[str] = []
        sent: list[_Sent] = []
        try:
            for pub, circuits in zip(coerced, texts, strict=True):
                first = len(tasks)
                for begin in range(0, len(circuits), self._per_task):
                    tasks.append(self._submit(circuits[begin : begin + self._per_task], pub.shots))
                sent.append(_Sent(pub, tuple(tasks[first:])))
        except BaseException:  # half a job is of no use to anybody
            for task in tasks:
                self._client.cancel(task)
            raise
        return QloomJob(self._client, sent)

    def _submit(self, circuits: list[str], shots: int) -> str:
        body = circuits[0] if len(circuits) == 1 else circuits
        form = {"kind": "openqasm3", "body": body, "shots": shots, "options": self._options}
        return str(self._client.submit(form, **self._where)["id"])

    def close(self) -> None:
        """Let go of the connection, if it is the sampler's own."""
        if self._own:
            self._client.close()

    def __enter__(self) -> QloomSamplerV2:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class QloomJob(BasePrimitiveJob):  # type: ignore[misc, type-arg, unused-ignore]
    """The tasks of one call of `run`."""

    def __init__(self, client: SyncBrokerClient, sent: Sequence[_Sent]) -> None:
        self.tasks = [task for one in sent for task in one.tasks]
        super().__init__(self.tasks[0] if self.tasks else "nothing")
        self._client = client
        self._sent = sent
        self._result: Any = None
        self._over: dict[str, str] = {}  # tasks that are over need not be asked again

    def result(self) -> Any:
        """Wait for all tasks; raises `QuantumFailed` if one of them is not to be."""
        if self._result is None:
            parts = [_pub_result(one.pub, self._answers(one)) for one in self._sent]
            self._result = PrimitiveResult(parts, metadata={"version": 2})
        return self._result

    def _answers(self, one: _Sent) -> list[Any]:
        answers: list[Any] = []
        for task in one.tasks:
            answer = self._client.result(task)
            answers += answer if isinstance(answer, list) else [answer]
        return answers

    def status(self) -> Any:
        """One of Qiskit's `JobStatus`, from how all tasks stand now."""
        states = [self._state(task) for task in self.tasks]
        if any(state in ("failed", "expired") for state in states):
            return JobStatus.ERROR
        if "cancelled" in states:
            return JobStatus.CANCELLED
        if all(state == "done" for state in states):
            return JobStatus.DONE
        return JobStatus.QUEUED if all(state == "queued" for state in states) else JobStatus.RUNNING

    def _state(self, task: str) -> str:
        if task not in self._over:
            state = str(self._client.status(task)["state"])
            if state not in FINAL:
                return state
            self._over[task] = state
        return self._over[task]

    def cancel(self) -> bool:
        """Take all tasks back; whether there was one to take back."""
        return any([self._client.cancel(task)["state"] == "cancelled" for task in self.tasks])  # noqa: C419  all of them

    def done(self) -> bool:
        """Whether all tasks were run."""
        return bool(self.status() is JobStatus.DONE)

    def running(self) -> bool:
        """Whether the tasks have begun and are not over."""
        return bool(self.status() is JobStatus.RUNNING)

    def cancelled(self) -> bool:
        """Whether a task was cancelled."""
        return bool(self.status() is JobStatus.CANCELLED)

    def in_final_state(self) -> bool:
        """Whether nothing more will happen."""
        return self.status() in (JobStatus.DONE, JobStatus.CANCELLED, JobStatus.ERROR)


def _export(pub: Any, number: int) -> list[str]:
    """One text for each set of parameter values, in the order of a flattened array."""
    if not pub.circuit.cregs:
        warnings.warn(f"pub {number} has no classical register, so its result is empty", UserWarning, stacklevel=3)
        return []
    bound = np.ravel(np.asarray(pub.parameter_values.bind_all(pub.circuit), dtype=object)).tolist()
    try:
        return [qasm3.dumps(_plain(circuit)) for circuit in bound]
    except Exception as error:  # Qiskit has several kinds
        said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise PayloadError(
            f"the circuit of pub {number} cannot be written as OpenQASM 3: {said}", hint="transpile it first"
        ) from None


def _regular(circuit: Any) -> bool:
    """Whether each classical bit is in one register."""
    bits = [bit for register in circuit.cregs for bit in register]
    return len(bits) == len(dict.fromkeys(bits)) == len(circuit.clbits)


def _bits(circuit: Any) -> list[Any]:
    """The classical bits, in the order of the text that is sent."""
    return [bit for register in circuit.cregs for bit in register] if _regular(circuit) else list(circuit.clbits)


def _plain(circuit: Any) -> Any:
    """With bits outside all registers, or in two of them, Qiskit writes what not every reader takes."""
    if _regular(circuit):
        return circuit
    flat = QuantumCircuit(QuantumRegister(circuit.num_qubits, "q"), ClassicalRegister(circuit.num_clbits, "c"))
    return flat.compose(circuit, range(circuit.num_qubits), range(circuit.num_clbits))


def _pub_result(pub: Any, answers: Sequence[Any]) -> Any:
    """Shots come back as counts, so that equal ones lie together; the bits of one shot stay together."""
    place = {bit: index for index, bit in enumerate(_bits(pub.circuit))}
    shots = [_shots(answer, len(place), pub.shots) for answer in answers]
    data = {}
    for register in pub.circuit.cregs:
        columns = [place[bit] for bit in register]
        picked = np.array([rows[:, columns] for rows in shots], dtype=bool)
        bools = picked.reshape(*pub.shape, pub.shots, register.size)
        data[register.name] = BitArray.from_bool_array(bools, order="little")
    return SamplerPubResult(
        DataBin(**data, shape=pub.shape), metadata={"shots": pub.shots, "circuit_metadata": pub.circuit.metadata}
    )


def _shots(answer: Any, width: int, shots: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """One row for each shot, bit 0 first."""
    counts = answer.get("counts") if isinstance(answer, Mapping) else None
    if not isinstance(counts, Mapping):
        raise QuantumFailed("the device does not answer with counts", hint="the client's result() has what it sent")
    texts = [text.replace(" ", "")[::-1] for text in counts]
    if any(len(text) != width for text in texts) or sum(counts.values()) != shots:
        raise QuantumFailed(f"the device's counts are not {shots} shots of {width} bits")
    rows = np.array([[bit == "1" for bit in text] for text in texts], dtype=np.uint8)
    return np.repeat(rows, list(counts.values()), axis=0)
