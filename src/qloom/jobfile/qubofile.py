"""Files that quantum phases read and write: a QUBO in, the best sample out, both JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from qloom.errors import PayloadError
from qloom.model import Payload, Sample
from qloom.payloads.adapt import qubo

HINT = 'write {"linear": {"a": -1}, "quadratic": [["a", "b", 2]], "offset": 0}, or a dimod model\'s to_serializable()'


def read_qubo(name: str, content: bytes, *, shots: int, seconds: float | None, device: str | None) -> Payload:
    """The payload that a file describes."""
    try:
        problem = json.loads(content)
    except ValueError as error:
        raise PayloadError(f"{name} is not JSON: {error}", hint=HINT) from None
    if not isinstance(problem, dict):
        raise PayloadError(f"{name} is no QUBO: a table is needed", hint=HINT)
    options: dict[str, Any] = {"shots": shots, "seconds": seconds, "device": device}
    try:
        if problem.get("type") == "BinaryQuadraticModel":
            return _from_dimod(problem, options)
        return _from_lists(problem, options)
    except PayloadError as error:
        raise PayloadError(f"{name} is no QUBO: {error.message}", hint=HINT) from None


def _from_dimod(problem: dict[str, Any], options: dict[str, Any]) -> Payload:
    import dimod

    try:
        model = dimod.BinaryQuadraticModel.from_serializable(problem)
    except Exception as error:  # whatever dimod makes of a file that it did not write
        raise PayloadError(f"dimod cannot read it ({type(error).__name__}: {error})") from None
    if not model.num_variables:
        raise PayloadError("it has no variables")
    if len({str(variable) for variable in model.variables}) < model.num_variables:
        raise PayloadError("two variables have the same name as text")
    return qubo(model, **options)


def _from_lists(problem: dict[str, Any], options: dict[str, Any]) -> Payload:
    if unknown := [key for key in problem if key not in ("linear", "quadratic", "offset")]:
        raise PayloadError(f"{unknown[0]!r} is not a known key")
    linear, quadratic = problem.get("linear", {}), problem.get("quadratic", [])
    if not isinstance(linear, dict) or not isinstance(quadratic, list):
        raise PayloadError("linear must be a table and quadratic a list")
    biases: dict[tuple[str, str], float] = {(variable, variable): _number(bias) for variable, bias in linear.items()}
    for entry in quadratic:
        if (
            not isinstance(entry, list)
            or len(entry) != 3
            or not all(type(label) in (str, int) for label in entry[:2])
        ):
            raise PayloadError(f"{entry!r} is not [variable, variable, bias]")
        pair = (str(entry[0]), str(entry[1]))
        biases[pair] = biases.get(pair, 0.0) + _number(entry[2])
    if not biases:
        raise PayloadError("it has no variables")
    payload = qubo(biases, **options)
    return replace(payload, body={**payload.body, "offset": _number(problem.get("offset", 0))})


def _number(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise PayloadError(f"{value!r} is no finite number")
    return number


def write_sample(sample: Sample) -> bytes:
    """The answer of a device as commands read it."""
    values = {str(variable): value for variable, value in sample.values.items()}
    return json.dumps({"sample": values, "energy": sample.energy}, indent=1).encode() + b"\n"
