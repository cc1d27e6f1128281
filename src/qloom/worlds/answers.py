"""The QPUs of a site as emulated devices, and their answers in worlds whose time is real.

The kind of a payload decides which solver computes its answer, so that a program gets the same one in every world. A
command talks to the device itself: it runs in a worker process of the world, and takes as long as it takes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from qloom.aio import TaskScope
from qloom.device import Description
from qloom.devices.answers import Answers, SolverProcesses, request_of
from qloom.devices.child import ChildDied
from qloom.devices.emulated import EmulatedDevice
from qloom.devices.solvers import SOLVERS
from qloom.devices.technologies import technology
from qloom.errors import QuantumFailed
from qloom.model import CommandResult, Payload, json_text
from qloom.payloads.adapt import program_answer, wire_body
from qloom.ports import Clock
from qloom.site import Qpu
from qloom.worlds.process import TaskRaised, WorkerDied, WorkerProcess
from qloom.worlds.workers import exited

ANY_SIZE = 2**62  # a site that gives no size takes any problem, however many shots
NO_LIMIT_S = 1e7


def emulate(qpu: Qpu, clock: Clock, answers: Answers) -> EmulatedDevice:
    """A QPU of a site as a device."""
    scale = technology(qpu.technology)
    description = Description(
        qpu.name,
        qpu.technology,
        qpu.qubits or ANY_SIZE,
        (*SOLVERS, "delay", "command"),
        scale.set_up_s,
        scale.per_shot_s,
        qpu.lanes,
        max_shots=ANY_SIZE,
    )
    return EmulatedDevice(description, answers, clock, outages_s=qpu.away_s)


class WorkerAnswers:
    """Answers of one QPU, computed in processes of this machine: `worker` gives one for each lane."""

    def __init__(self, qpu: Qpu, worker: Callable[[str], WorkerProcess]) -> None:
        self._name = qpu.name
        self._worker = worker
        self._lanes = [f"{qpu.name}-{lane}" for lane in range(qpu.lanes)]
        self._processes = SolverProcesses(NO_LIMIT_S)
        self._computing = TaskScope()

    def seconds(self, payload: Payload) -> float | None:
        """See `Answers.seconds`."""
        return 0.0 if payload.kind == "command" else None

    def begin(self, token: str, payload: Payload, *, crash: bool = False) -> asyncio.Future[Any] | None:
        """See `Answers.begin`."""
        if payload.kind == "delay":
            return None
        if payload.kind == "command":
            return self._computing.start(self._run_command(payload))
        return self._computing.start(self._solve(token, payload, crash))

    def compute(self, token: str, payload: Payload) -> Any:
        """See `Answers.compute`: of a delay."""
        return payload.value

    async def _solve(self, token: str, payload: Payload, crash: bool) -> Any:
        body = json_text(wire_body(payload))
        try:
            answer = await self._processes.solve(SOLVERS[payload.kind], request_of(payload, token), body, crash=crash)
        except ChildDied as error:
            raise QuantumFailed(f"QPU {self._name}, task {payload.name}: {error.message}") from None
        return program_answer(payload, json.loads(answer))

    async def _run_command(self, payload: Payload) -> CommandResult:
        lane = self._lanes.pop()
        environment = {"QLOOM_QPU": self._name, "QLOOM_JOB": str(payload.options.get("job", ""))}
        try:
            result: CommandResult = (await self._worker(lane).run(payload.body, environment)).result
            if result.exit_code != 0:
                raise WorkerDied(exited(result))
        except (TaskRaised, WorkerDied) as error:
            raise QuantumFailed(f"QPU {self._name}, task {payload.name} {error}") from None
        finally:
            self._lanes.append(lane)
        return result

    async def close(self) -> None:
        """See `Answers.close`."""
        await self._computing.aclose()
        await self._processes.close()
