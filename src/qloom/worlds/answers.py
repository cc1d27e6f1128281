"""The QPUs of a site as emulated devices, their answers where time is real, and what a task or a payload computes.

The kind of a payload decides which solver computes its answer, so that a program gets the same one in every world. A
command talks to the device itself: it runs in a worker process of the world, and takes as long as it takes.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qloom.aio import TaskScope
from qloom.device import Description
from qloom.devices import solvers
from qloom.devices.answers import Answers, SolverProcesses, request_of
from qloom.devices.child import ChildDied
from qloom.devices.emulated import EmulatedDevice
from qloom.devices.profiles import load_profile
from qloom.devices.solvers import OPTIONS, SOLVERS
from qloom.devices.technologies import technology
from qloom.errors import QuantumFailed
from qloom.logs import command_log, exited
from qloom.model import CommandResult, Payload, Sample, Task, TaskFunction, json_text
from qloom.payloads.adapt import program_answer, wire_body
from qloom.shared import Shared
from qloom.site import Qpu
from qloom.world import Clock
from qloom.worlds.process import TaskRaised, WorkerDied, WorkerProcess

ANY_SIZE = 2**62  # a site that gives no size takes any problem, however many shots
NO_LIMIT_S = 1e7

_IMMUTABLE = (type(None), bool, int, float, str, bytes)


def emulate(qpu: Qpu, clock: Clock, answers: Answers) -> EmulatedDevice:
    """A QPU of a site as a device."""
    if qpu.profile:
        return EmulatedDevice(_as_profile(qpu), answers, clock, outages_s=qpu.away_s, windows=qpu.calibration)
    scale = technology(qpu.technology)
    description = Description(
        qpu.name,
        qpu.technology,
        qpu.qubits or ANY_SIZE,
        (*scale.payloads, "delay", "command"),
        scale.set_up_s,
        scale.per_shot_s,
        qpu.lanes,
        max_shots=ANY_SIZE,
        max_used=qpu.qubits or scale.most_used,
        options=_options(scale.payloads),
    )
    return EmulatedDevice(description, answers, clock, outages_s=qpu.away_s, windows=qpu.calibration)


def _as_profile(qpu: Qpu) -> Description:
    """A machine of a profile; circuits and sequences use no more of it than its emulator can hold."""
    machine, scale = load_profile(qpu.profile), technology(qpu.technology)
    return replace(
        machine,
        name=qpu.name,
        payloads=(*machine.payloads, "delay", "command"),
        lanes=qpu.lanes,
        qubits=qpu.qubits or machine.qubits,
        max_used=min(scale.most_used or machine.qubits, qpu.qubits or machine.qubits),
        options=_options(machine.payloads),
    )


def _options(kinds: Sequence[str]) -> tuple[str, ...]:
    return tuple(option for kind in kinds if kind in SOLVERS for option in OPTIONS[SOLVERS[kind]])


class WorkerAnswers:
    """Answers of one QPU, computed in processes of this machine: `worker` gives one for each lane."""

    def __init__(self, qpu: Qpu, worker: Callable[[str], WorkerProcess], logs: Path | None = None) -> None:
        self._name = qpu.name
        self._logs = logs  # where what commands print goes
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
        lane, log = self._lanes.pop(), command_log(self._logs, payload)
        environment = {"QLOOM_QPU": self._name, "QLOOM_JOB": str(payload.options.get("job", ""))}
        try:
            result: CommandResult = (await self._worker(lane).run(payload.body, environment, log)).result
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


def compute_inline(task: Task) -> Any:
    """The result of a task, computed in this process with arguments of its own, as a worker would have them."""
    if task.command is not None:
        return CommandResult(0, "", "")  # commands are not run in virtual time
    function = task.stand_in or task.function
    if isinstance(function, TaskFunction):
        function = function.function
    assert function is not None  # noqa: S101  a task has a command or a function
    if getattr(function, "__closure__", None) or isinstance(function, types.MethodType):
        function = pickle.loads(_dumps(function))  # noqa: S301  what it holds is a worker's own, too
    arguments = [item if type(item) in _IMMUTABLE else _own(item) for item in task.args]
    result = function(*arguments, **_own(dict(task.kwargs))) if task.kwargs else function(*arguments)
    return result if type(result) in _IMMUTABLE else pickle.loads(_dumps(result))  # noqa: S301


def _own(value: Any) -> Any:
    """A copy, so that a task cannot change what the program has; shared data arrives as itself."""
    if type(value) in _IMMUTABLE:
        return value
    if isinstance(value, Shared):
        return value.value
    if type(value) in (list, tuple):
        return type(value)([_own(item) for item in value])
    if type(value) is dict:
        return {key: _own(item) for key, item in value.items()}
    return pickle.loads(_dumps(value))  # noqa: S301  bytes that were made one line above


def _dumps(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        import cloudpickle

        return bytes(cloudpickle.dumps(value))


def solve(payload: Payload, seed: int) -> Any:
    """The answer of an emulated device, computed in this process; a delay is answered by its body."""
    if payload.kind == "delay":
        return payload.value
    if payload.kind == "command":
        return CommandResult(0, "", "")
    body = wire_body(payload)
    if payload.kind == "qubo" and not body["linear"]:
        return Sample({}, float(body["offset"]))
    request = {
        "kind": payload.kind,
        "body": body,
        "shots": payload.shots,
        "seed": seed,
        "options": payload.options,
    }
    return program_answer(payload, solvers.solve(SOLVERS[payload.kind], request))
