"""How the objects of other libraries reach a QPU: through the job of a program, or through a broker.

An object hands payloads to a `PayloadTransport` and gets `StartedTask`s back. It knows neither jobs nor brokers.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from qloom.answers import executed
from qloom.device import Description
from qloom.devices.schema import description_from
from qloom.errors import InputError
from qloom.model import Payload
from qloom.payloads.adapt import program_answer, wire_body

if TYPE_CHECKING:
    from qloom.broker.client.sync import SyncBrokerClient
    from qloom.interop.futures import OpenFutures

FINAL = ("done", "failed", "cancelled", "expired")


class StartedTask(Protocol):
    """A payload that was handed over."""

    id: str

    def result(self) -> Any:
        """Wait for the answer; raises `QuantumFailed` if there will be none."""

    def __await__(self) -> Generator[Any, None, Any]:
        """The same for an asynchronous program."""

    def state(self) -> str:
        """One of `queued`, `running`, `done`, `failed`, `cancelled` and `expired`."""

    def cancel(self) -> bool:
        """Take the task back; whether it was taken back."""


class PayloadTransport(Protocol):
    """Carries payloads to a QPU."""

    places: tuple[str, ...]  # what `start` takes besides a payload

    @property
    def seed(self) -> int:
        """What compilers of this side are seeded with."""

    def describe(self, kind: str) -> Description | None:
        """The device that payloads of this kind go to; None if that is decided when one comes."""

    def start(self, payload: Payload, **place: str | None) -> StartedTask:
        """Hand a payload over."""

    def close(self) -> None:
        """Let go of what the transport has opened."""


class RunningProgram(Protocol):
    """A synchronous program that runs now: what objects that nobody hands a job go through."""

    def payload_transport(self, device: str | None = None) -> PayloadTransport:
        """The quantum calls of its job."""

    def open_futures(self) -> OpenFutures:
        """The futures of its job."""


CURRENT_PROGRAM: ContextVar[RunningProgram | None] = ContextVar(
    "the synchronous program that runs here", default=None
)


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

    places: tuple[str, ...] = ("device",)

    def __init__(
        self,
        call: Callable[..., CallHandle],
        describe: Callable[[str, str | None], Description | None],
        device: str | None,
        seed: int,
    ) -> None:
        self._call = call
        self._describe = describe
        self._device = device
        self._numbers = itertools.count(1)
        self.seed = seed

    def describe(self, kind: str) -> Description | None:
        """See `PayloadTransport.describe`: the device that would be chosen now."""
        return self._describe(kind, self._device)

    def start(self, payload: Payload, **place: str | None) -> StartedTask:
        """See `PayloadTransport.start`."""
        handle = self._call(payload, device=place.get("device") or self._device)
        return CalledTask(f"quantum-{next(self._numbers)}", handle)

    def close(self) -> None:
        """There is nothing to close: the job goes on."""


class CalledTask:
    """One quantum call of a job."""

    def __init__(self, id: str, handle: CallHandle) -> None:
        self.id = id
        self._handle = handle

    def result(self) -> Any:
        """See `StartedTask.result`."""
        try:
            return self._handle.result()
        except asyncio.InvalidStateError:
            hint = "in an async program: result = await sampler.run(...)"
            raise InputError("the result is not there yet", hint=hint) from None

    def __await__(self) -> Generator[Any, None, Any]:
        if not isinstance(self._handle, Awaitable):
            raise InputError("a synchronous program does not await", hint="use .result(), or write async def")
        answer = yield from self._handle.__await__()
        return answer

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

    places: tuple[str, ...] = ("device", "session")

    def __init__(
        self,
        device: str | None = None,
        client: SyncBrokerClient | None = None,
        *,
        name: str,
        session: str | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        self._where = {"device": device, "session": session, "name": name}
        self._own = client is None
        self._device = device
        self._seed = seed
        self.seed = seed or 0
        if client is None:
            from qloom.broker.client.sync import SyncBrokerClient  # needs the extra `broker`, which a job does not

            client = SyncBrokerClient(**options)
        elif options:
            raise InputError(f"a client has its own {', '.join(options)}")
        self._client = client

    def describe(self, kind: str) -> Description | None:
        """See `PayloadTransport.describe`."""
        return None if self._device is None else description_from(self._client.device(self._device))

    def start(self, payload: Payload, **place: str | None) -> StartedTask:
        """See `PayloadTransport.start`."""
        if self._seed is not None:
            payload = replace(payload, options={"seed": self._seed, **payload.options})
        where = {**self._where, **{name: value for name, value in place.items() if value is not None}}
        sent = replace(payload, body=wire_body(payload))
        return BrokerTask(self._client, str(self._client.submit(sent, **where)["id"]), payload)

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

    def result(self) -> Any:
        """See `StartedTask.result`."""
        from qloom.broker.client.client import executed_s

        answer = program_answer(self._payload, self._client.result(self.id))
        view = self._client.status(self.id)
        return executed(answer, view.get("calibration"), executed_s(view))

    def __await__(self) -> Generator[Any, None, Any]:
        raise InputError(
            "tasks of a broker are not awaited", hint="use .result(), or the objects of a job in a program"
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
