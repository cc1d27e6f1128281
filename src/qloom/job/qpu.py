"""The QPUs as one job sees them: run a payload, keep a device for a while, ask how long the wait would be.

A hold that several calls share is opened by the first, kept while anyone uses it, and closed by the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Generic, TypeVar

from qloom.aio import TaskScope, done, finish, outcome_of
from qloom.broker.port import BrokerPort
from qloom.errors import PayloadError
from qloom.job.cluster import JobCluster
from qloom.journal.file import Recorder
from qloom.model import Need, Payload, QpuHold, QuantumWork

T = TypeVar("T")


class SharedHold(Generic[T]):
    """Shares one context. It is entered and left by a task of its own, so any user may be cancelled."""

    def __init__(self) -> None:
        self._users = 0
        self._tasks = TaskScope()
        self._keeper: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[T]
        self._unused: asyncio.Event

    @asynccontextmanager
    async def use(self, hold: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Wait until the hold of the first user is open, and keep that one open for as long as this context lasts."""
        while self._users == 0 and self._keeper is not None and not self._keeper.done():
            await done(self._keeper)  # the last users have left and it is being closed
        if self._users == 0:
            self._opened = asyncio.get_running_loop().create_future()
            self._unused = asyncio.Event()
            self._keeper = self._tasks.start(self._keep(hold, self._opened, self._unused))
        keeper, opened, unused = self._keeper, self._opened, self._unused
        assert keeper is not None  # noqa: S101
        self._users += 1
        try:
            yield await outcome_of(opened)
        finally:
            self._users -= 1
            if self._users == 0:
                unused.set()
                await finish(keeper, cancel=not opened.done())
                if not keeper.cancelled() and opened.done():
                    keeper.result()

    async def _keep(
        self, hold: AbstractAsyncContextManager[T], opened: asyncio.Future[T], unused: asyncio.Event
    ) -> None:
        try:
            async with hold as held:
                opened.set_result(held)
                await unused.wait()
        except asyncio.CancelledError:
            if not opened.cancel():
                raise
        except BaseException as failure:
            if opened.done():
                raise  # the last user is given it
            opened.set_exception(failure)
            opened.exception()  # seen, even if no user is left


class QuantumBlock:
    """A quantum block of the program; it takes hold of the QPU with its first task that has to run."""

    def __init__(self, reserve: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._reserve = reserve
        self._stack = AsyncExitStack()
        self._tasks = TaskScope()
        self._holding: asyncio.Task[Any] | None = None
        self.calls: list[asyncio.Task[Any]] = []

    async def finish(self) -> None:
        """Wait for the calls that were made inside; whoever awaits them sees how they ended."""
        if self.calls:
            await asyncio.wait(self.calls)

    async def hold(self) -> None:
        """Take hold, once."""
        if self._holding is None:
            self._holding = self._tasks.start(self._stack.enter_async_context(self._reserve()))
        await outcome_of(self._holding)

    async def close(self) -> None:
        """Let go."""
        if self._holding is not None:
            await finish(self._holding, cancel=not self._holding.done())
        await self._stack.aclose()


BLOCK_PATIENCE_S = 60.0


class JobQpu:
    """One job's way to the broker."""

    def __init__(
        self,
        broker: BrokerPort,
        cluster: JobCluster,
        recorder: Recorder,
        has_stopped: Callable[[], bool] | None = None,
    ) -> None:
        self._broker = broker
        self._cluster = cluster
        self._recorder = recorder
        self._has_stopped = has_stopped

    def require_device(self, work: QuantumWork) -> None:
        """Raise `PayloadError` for a payload that no device takes, before anything is held for it."""
        try:
            self._broker.choose(work.payload)
        except PayloadError as error:
            error.job = work.job
            raise

    async def run(self, work: QuantumWork) -> Any:
        """Execute a payload in the hold that the job has of a device for it, or else in the queue."""
        session = await self._cluster.session_for(work.payload)
        device = session.device if session is not None else self._broker.choose(work.payload)
        self._cluster.begin_quantum(work)
        try:
            answer = await self._broker.run(work, device, session, self._recorder)
        finally:
            self._cluster.end_quantum()
        if self._has_stopped is not None and self._has_stopped():
            await asyncio.get_running_loop().create_future()  # the run ends: whoever ends it cancels this job
        return answer

    @asynccontextmanager
    async def reserve(self) -> AsyncIterator[None]:
        """Keep a device for this job alone, unless the job holds one anyway.

        The job may hold nodes that others wait for, so it waits for the device only so long; after that the tasks
        of the block queue one by one.
        """
        held = None
        if self._cluster.session is None:
            held = await self._cluster.allocate(Need(qpu=QpuHold.WHOLE), within_s=BLOCK_PATIENCE_S)
        try:
            yield
        finally:
            if held is not None:
                await held.release()

    def expected_wait_s(self, payload: Payload) -> tuple[str, float | None]:
        """The device that would be used, and the wait for it in seconds; None if it is away or somebody holds it."""
        name = self._broker.choose(payload)
        own = self._cluster.session
        return name, self._broker.expected_wait_s(name, own.id if own is not None else None)
