"""Quantum commands beside a broker: programs that talk to a device themselves, with the vendor's own software.

Nothing of a command passes through the broker. The job holds the device for it: in the session that its strategy has
open, or in one of the whole device that is opened for the command and closed after it. The command finds the device
in QLOOM_QPU, the broker in QLOOM_BROKER and the session in QLOOM_SESSION.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from qloom.broker.port import BrokerPort, Session
from qloom.errors import QuantumFailed, TaskFailed
from qloom.journal.events import QuantumEnded, QuantumQueued, QuantumStarted
from qloom.journal.file import Recorder
from qloom.logs import captured, command_log, exited, run_logged
from qloom.model import CommandResult, QpuHold, QuantumWork, Task


@dataclass(frozen=True)
class QuantumCommands:
    """Runs the quantum commands of a run on the machine of its driver."""

    address: str  # of the broker
    logs: Path | None  # where what commands print goes

    async def run(
        self, broker: BrokerPort, work: QuantumWork, device: str, session: Session | None, recorder: Recorder
    ) -> CommandResult:
        """Wait for the device, then run the command; if the caller is cancelled, the command is ended."""
        hold = session.hold if session is not None else QpuHold.WHOLE
        recorder.record(QuantumQueued(work=work.id, name=work.payload.name, device=device, hold=hold.value))
        try:
            async with _held(broker, device, work.job, session) as held:
                recorder.record(QuantumStarted(work=work.id, device=device))
                result = await self._execute(work, device, held)
        except asyncio.CancelledError:
            recorder.record(QuantumEnded(work=work.id, device=device, state="cancelled"))
            raise
        except QuantumFailed as error:
            recorder.record(QuantumEnded(work=work.id, device=device, state="failed", error=str(error)))
            raise
        kept = recorder.keep(result)
        recorder.record(QuantumEnded(work=work.id, device=device, state="done", result=kept), durable=True)
        return result

    async def _execute(self, work: QuantumWork, device: str, session: Session) -> CommandResult:
        task: Task = work.payload.body
        around = {"QLOOM_QPU": device, "QLOOM_BROKER": self.address, "QLOOM_SESSION": session.id}
        environment = {**os.environ, **task.env, **around, "QLOOM_JOB": work.job}
        log = command_log(self.logs, work.for_device())
        try:
            code, stdout, stderr = await run_logged(task.command or (), environment, task.cwd, log)
        except TaskFailed as error:
            raise QuantumFailed(f"QPU {device}, task {work.payload.name}: {error.message}", job=work.job) from None
        result = CommandResult(code, stdout, stderr, captured(task))
        if code != 0:
            raise QuantumFailed(f"QPU {device}, task {work.payload.name} {exited(result)}", job=work.job)
        return result


@asynccontextmanager
async def _held(broker: BrokerPort, device: str, job: str, session: Session | None) -> AsyncIterator[Session]:
    """The session of the strategy, or one for this command alone."""
    if session is not None:
        yield session
        return
    own = await broker.open_session(device, QpuHold.WHOLE, job)
    try:
        yield own
    finally:
        await own.close()
