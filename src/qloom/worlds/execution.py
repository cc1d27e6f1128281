"""What a task or a payload computes, wherever it runs."""

from __future__ import annotations

import pickle
import types
from typing import Any

from qloom.devices import solvers
from qloom.devices.solvers import SOLVERS
from qloom.model import CommandResult, Payload, Sample, Task, TaskFunction
from qloom.payloads.adapt import program_answer, wire_body
from qloom.shared import Shared

_IMMUTABLE = (type(None), bool, int, float, str, bytes)


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
