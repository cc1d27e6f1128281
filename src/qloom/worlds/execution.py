"""What a task or a payload computes, wherever it runs."""

from __future__ import annotations

import pickle
import types
from collections.abc import Mapping
from typing import Any

from qloom.model import CommandResult, Payload, Sample, Task, TaskFunction
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
    """The answer of an emulated device: the best sample of simulated annealing, or nothing for a delay."""
    if payload.kind == "delay":
        return payload.body
    if payload.kind == "command":
        return CommandResult(0, "", "")
    return anneal(payload.body, payload.shots, seed)


def anneal(body: Mapping[str, Any], shots: int, seed: int) -> Sample:
    """Simulated annealing of a QUBO; the same seed gives the same sample."""
    import dimod
    from dwave.samplers import SimulatedAnnealingSampler

    linear = dict(body["linear"])
    quadratic = {(u, v): bias for u, v, bias in body["quadratic"]}
    model = dimod.BinaryQuadraticModel(linear, quadratic, body["offset"], "BINARY")
    sampler: Any = SimulatedAnnealingSampler
    best = sampler().sample(model, num_reads=shots, seed=seed).first
    return Sample({variable: int(best.sample[variable]) for variable in linear}, float(best.energy))
