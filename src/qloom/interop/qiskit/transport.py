"""How the circuits of Qiskit's objects reach a QPU: through the job of a program, or through a broker.

A sampler, an estimator and a backend hand circuits to a `CircuitTransport` and get `StartedTask`s back. They know
neither jobs nor brokers.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from qloom.devices.schema import description_from
from qloom.errors import InputError
from qloom.interop.qiskit.targets import qiskit_target
from qloom.model import Payload
from qloom.payloads.adapt import program_answer
from qloom.payloads.circuits import CircuitRows, circuit_payload

if TYPE_CHECKING:
    from qloom.broker.client.sync import SyncBrokerClient

FINAL = ("done", "failed", "cancelled", "expired")


class StartedTask(Protocol):
    """Circuits that were handed over together: they pay for one set-up."""

    id: str

    def result(self) -> list[Any]:
        """Wait for the answer to each circuit, in order; raises `QuantumFailed` if there will be none."""

    def __await__(self) -> Generator[Any, None, list[Any]]:
        """The same for an asynchronous program."""

    def state(self) -> str:
        """One of `queued`, `running`, `done`, `failed`, `cancelled` and `expired`."""

    def cancel(self) -> bool:
        """Take the task back; whether it was taken back."""


class CircuitTransport(Protocol):
    """Carries circuits to a QPU."""

    @property
    def target(self) -> Any:
        """Qiskit's `Target` of the QPU; None if it takes any circuit, or if it is not known which one it will be."""

    @property
    def seed(self) -> int:
        """What the transpiler is seeded with."""

    def start(self, entries: Sequence[CircuitRows], shots: int) -> Iterator[StartedTask]:
        """Hand circuits over as one task, or as several where a task may not have so many."""

    def close(self) -> None:
        """Let go of what the transport has opened."""


# Through a job


class CallHandle(Protocol):
    """A quantum call of a job: a `Handle` of a synchronous program, a task of asyncio of an asynchronous one."""

    def result(self) -> Any:
        """What the call returned; a handle waits for it, a task of asyncio does not."""

    def done(self) -> bool:
        """Whether the call has ended."""

    def cancel(self) -> object:
        """End the call."""


class JobTransport:
    """The quantum calls of a job: each task is one call, so that strategy, journal and figures know of it."""

    def __init__(self, call: Callable[..., CallHandle], device: str | None, target: Any, seed: int) -> None:
        self._call = call
        self._device = device
        self._numbers = itertools.count(1)
        self.target = target
        self.seed = seed

    def start(self, entries: Sequence[CircuitRows], shots: int) -> Iterator[StartedTask]:
        """See `CircuitTransport.start`."""
        payload = circuit_payload(entries, shots=shots, name="circuits")
        yield CalledTask(f"quantum-{next(self._numbers)}", self._call(payload, device=self._device))

    def close(self) -> None:
        """There is nothing to close: the job goes on."""


class CalledTask:
    """One quantum call of a job."""

    def __init__(self, id: str, handle: CallHandle) -> None:
        self.id = id
        self._handle = handle

    def result(self) -> list[Any]:
        """See `StartedTask.result`."""
        try:
            answers: list[Any] = self._handle.result()
        except asyncio.InvalidStateError:
            hint = "in an async program: result = await sampler.run(...)"
            raise InputError("the result is not there yet", hint=hint) from None
        return answers

    def __await__(self) -> Generator[Any, None, list[Any]]:
        if not isinstance(self._handle, Awaitable):
            raise InputError("a synchronous program does not await", hint="use .result(), or write async def")
        answers: list[Any] = yield from self._handle.__await__()
        return answers

    def state(self) -> str:
        """See `StartedTask.state`. Whether a call waits or runs is known to its strategy alone."""
        if not self._handle.done():
            return "running"
        try:
            self._handle.result()
        except asyncio.CancelledError:
            return "cancelled"
        except Exception:
            return "failed"
        return "done"

    def cancel(self) -> bool:
        """See `StartedTask.cancel`."""
        open_before = not self._handle.done()
        self._handle.cancel()
        return open_before


# Through a broker


class BrokerTransport:
    """Tasks of a broker, on the device that is named or on the one with the least to do."""

    def __init__(
        self,
        device: str | None = None,
        client: SyncBrokerClient | None = None,
        *,
        session: str | None = None,
        circuits_per_task: int = 100,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        if circuits_per_task < 1:
            raise InputError(f"circuits_per_task must be at least 1, not {circuits_per_task}")
        self._where = {"device": device, "session": session, "name": "qiskit"}
        self._options = {} if seed is None else {"seed": seed}
        self._per_task = circuits_per_task
        self._own = client is None
        self._device = device
        self.seed = seed or 0
        if client is None:
            from qloom.broker.client.sync import SyncBrokerClient  # needs the extra `broker`, which a job does not

            client = SyncBrokerClient(**options)
        self._client = client

    @cached_property
    def target(self) -> Any:
        """See `CircuitTransport.target`: of a device that is named and does not compile."""
        if self._device is None:
            return None
        description = description_from(self._client.device(self._device))
        return None if description.compiles or description.target is None else qiskit_target(description.target)

    def start(self, entries: Sequence[CircuitRows], shots: int) -> Iterator[StartedTask]:
        """See `CircuitTransport.start`."""
        for part in split(entries, self._per_task):
            whole = circuit_payload(part, shots=shots)
            payload = Payload(whole.kind, whole.body, whole.shots, options=self._options)
            yield BrokerTask(self._client, str(self._client.submit(payload, **self._where)["id"]), payload)

    def close(self) -> None:
        """Let go of the connection, if the transport has made it."""
        if self._own:
            self._client.close()


class BrokerTask:
    """A task of a broker."""

    def __init__(self, client: SyncBrokerClient, id: str, payload: Payload) -> None:
        self.id = id
        self._client = client
        self._payload = payload
        self._final = ""  # once the task is over, nobody need be asked again

    def result(self) -> list[Any]:
        """See `StartedTask.result`."""
        answers: list[Any] = program_answer(self._payload, self._client.result(self.id))
        return answers

    def __await__(self) -> Generator[Any, None, list[Any]]:
        raise InputError(
            "tasks of a broker are not awaited", hint="use .result(), or job.qiskit_sampler() in a program"
        )
        yield

    def state(self) -> str:
        """See `StartedTask.state`."""
        state = self._final or str(self._client.status(self.id)["state"])
        if state in FINAL:
            self._final = state
        return state

    def cancel(self) -> bool:
        """See `StartedTask.cancel`."""
        return bool(self._client.cancel(self.id)["state"] == "cancelled")


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
