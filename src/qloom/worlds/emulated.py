"""An emulated QPU beside the driver, for worlds in real time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qloom.broker.queue.promise import DeviceSpec
from qloom.devices.technologies import technology
from qloom.errors import QuantumFailed
from qloom.model import CommandResult, Payload, QuantumWork
from qloom.ports import Clock
from qloom.site import Qpu
from qloom.worlds.execution import anneal
from qloom.worlds.process import TaskRaised, WorkerDied, WorkerProcess
from qloom.worlds.workers import exited


class EmulatedDevice:
    """Simulated annealing in a process of its own (`worker` gives one for each lane), as slow as its technology."""

    def __init__(self, qpu: Qpu, clock: Clock, worker: Callable[[str], WorkerProcess]) -> None:
        self.spec = DeviceSpec(qpu.name, qpu.shares, qpu.lanes)
        self.outages_s = qpu.away_s
        self.qubits = qpu.qubits
        self._technology = technology(qpu.technology)
        self._clock = clock
        self._worker = worker
        self._lanes = [f"{qpu.name}-{lane}" for lane in range(qpu.lanes)]

    def seconds(self, payload: Payload) -> float:
        """How long the technology takes."""
        return self._technology.seconds(payload)

    async def run(self, work: QuantumWork) -> Any:
        """Compute the answer while the time passes that the device would take."""
        if work.payload.kind == "command":
            return await self._answer(work)  # it talks to the device itself: it takes as long as it takes
        until_us = self._clock.now_us() + round(self.seconds(work.payload) * 1e6)
        answer = await self._answer(work) if work.payload.kind != "delay" else work.payload.body
        await self._clock.sleep(max(0, until_us - self._clock.now_us()) / 1e6)
        return answer

    async def _answer(self, work: QuantumWork) -> Any:
        lane = self._lanes.pop()
        try:
            if work.payload.kind == "command":
                return await self._run_command(work, lane)
            return await self._worker(lane).call(anneal, work.payload.body, work.payload.shots, work.seed)
        except (TaskRaised, WorkerDied) as error:
            raise QuantumFailed(f"QPU {self.spec.name}, task {work.payload.name} {error}", job=work.job) from None
        finally:
            self._lanes.append(lane)

    async def _run_command(self, work: QuantumWork, lane: str) -> CommandResult:
        environment = {"QLOOM_QPU": self.spec.name, "QLOOM_JOB": work.job}
        result: CommandResult = (await self._worker(lane).run(work.payload.body, environment)).result
        if result.exit_code != 0:
            raise WorkerDied(exited(result))
        return result
