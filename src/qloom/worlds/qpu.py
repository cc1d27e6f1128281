"""The QPUs as one job sees them: run a payload, keep a device for a while, ask how long the wait would be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from qloom.broker.inprocess import InProcessBroker, Session
from qloom.journal.file import Recorder
from qloom.model import QpuHold, QuantumWork
from qloom.ports import Allocation
from qloom.worlds import allocation as shared


class JobQpu:
    """One job's way to the broker."""

    def __init__(self, broker: InProcessBroker, recorder: Recorder) -> None:
        self._broker = broker
        self._recorder = recorder
        self._reserved: Session | None = None

    async def run(self, work: QuantumWork, held: Allocation | None) -> Any:
        """Execute a payload in the session that the job holds, or else in the queue."""
        session = held.session if isinstance(held, shared.Allocation) else None
        session = session or self._reserved
        if session is not None and work.payload.device not in (None, session.device):
            session = None
        device = session.device if session else self._broker.choose(work.payload.device)
        return await self._broker.run(work, device, session, self._recorder)

    @asynccontextmanager
    async def reserve(self, held: Allocation | None) -> AsyncIterator[None]:
        """Keep a device for this job alone, unless the job holds one anyway."""
        if (isinstance(held, shared.Allocation) and held.session) or self._reserved:
            yield
            return
        device = self._broker.choose(None)
        self._reserved = await self._broker.open_session(device, QpuHold.WHOLE)
        self._recorder.record("reserved", session=self._reserved.id, device=device)
        try:
            yield
        finally:
            session, self._reserved = self._reserved, None
            try:
                await session.close()
            finally:
                self._broker.close_session(session.id)
                self._recorder.record("unreserved", session=session.id, device=device)

    def expected_wait_s(self, device: str | None) -> tuple[str, float | None]:
        """The device that would be used, and the wait for it in seconds; None if it is away."""
        name = self._broker.choose(device)
        return name, self._broker.expected_wait_s(name)
