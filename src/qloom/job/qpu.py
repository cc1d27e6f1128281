"""The QPUs as one job sees them: run a payload, keep a device for a while, ask how long the wait would be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from qloom.broker.port import BrokerPort
from qloom.errors import PayloadError
from qloom.job.cluster import JobCluster
from qloom.journal.file import Recorder
from qloom.model import Need, Payload, QpuHold, QuantumWork

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
