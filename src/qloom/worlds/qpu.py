"""The QPUs as one job sees them: run a payload, keep a device for a while, ask how long the wait would be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from qloom.broker.inprocess import InProcessBroker
from qloom.journal.file import Recorder
from qloom.model import QuantumWork
from qloom.worlds.cluster import JobCluster


class JobQpu:
    """One job's way to the broker."""

    def __init__(self, broker: InProcessBroker, cluster: JobCluster, recorder: Recorder) -> None:
        self._broker = broker
        self._cluster = cluster
        self._recorder = recorder

    async def run(self, work: QuantumWork) -> Any:
        """Execute a payload in the session that the job holds now, or else in the queue."""
        session = self._cluster.session
        if session is not None and work.payload.device not in (None, session.device):
            session = None
        device = session.device if session else self._broker.choose(work.payload.device)
        return await self._broker.run(work, device, session, self._recorder)

    @asynccontextmanager
    async def reserve(self) -> AsyncIterator[None]:
        """Keep a device for this job alone, unless the job holds one anyway."""
        if self._cluster.session is not None:
            yield
            return
        await self._cluster.reserve()
        try:
            yield
        finally:
            await self._cluster.end_reservation()

    def expected_wait_s(self, device: str | None) -> tuple[str, float | None]:
        """The device that would be used, and the wait for it in seconds; None if it is away."""
        name = self._broker.choose(device)
        return name, self._broker.expected_wait_s(name)
