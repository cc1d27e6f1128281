"""The QPUs as one job sees them: run a payload, keep a device for a while, ask how long the wait would be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from qloom.broker.port import BrokerPort
from qloom.job.cluster import JobCluster
from qloom.journal.file import Recorder
from qloom.model import Need, QpuHold, QuantumWork

BLOCK_PATIENCE_S = 60.0


class JobQpu:
    """One job's way to the broker."""

    def __init__(self, broker: BrokerPort, cluster: JobCluster, recorder: Recorder) -> None:
        self._broker = broker
        self._cluster = cluster
        self._recorder = recorder

    async def run(self, work: QuantumWork) -> Any:
        """Execute a payload in the session that the job holds now, or else in the queue."""
        session = self._cluster.session
        if session is not None and work.payload.device not in (None, session.device):
            session = None
        payload = work.payload
        device = session.device if session else self._broker.choose(payload.device, payload.variables)
        self._cluster.begin_quantum(work)
        try:
            return await self._broker.run(work, device, session, self._recorder)
        finally:
            self._cluster.end_quantum()

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

    def expected_wait_s(self, device: str | None) -> tuple[str, float | None]:
        """The device that would be used, and the wait for it in seconds; None if it is away or somebody holds it."""
        name = self._broker.choose(device)
        own = self._cluster.session
        return name, self._broker.expected_wait_s(name, own.id if own is not None else None)
