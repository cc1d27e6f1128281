"""QUBOs in a payload: qloom's own form, or what dimod's `to_serializable` gives. Standard library only."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qloom.errors import PayloadError

HINT = 'a QUBO is {"linear": [[variable, bias], ...], "quadratic": [[u, v, bias], ...], "offset": 0.0}'


@dataclass(frozen=True)
class Qubo:
    """A QUBO with its variables numbered: labels are any JSON value and need not be hashable."""

    variables: list[Any]
    linear: list[float]
    quadratic: dict[tuple[int, int], float]  # by indices, in the order in which a pair was first given; no pair twice
    offset: float

    def couplings(self) -> dict[tuple[int, int], float]:
        """The quadratic biases by (smaller, larger) index."""
        return {(min(pair), max(pair)): bias for pair, bias in self.quadratic.items()}

    def energy(self, values: Sequence[int]) -> float:
        """Of one assignment."""
        alone = sum(bias for bias, value in zip(self.linear, values, strict=True) if value)
        return self.offset + alone + sum(b for (u, v), b in self.quadratic.items() if values[u] and values[v])


def read_qubo(body: Any) -> Qubo:
    """The problem in a payload's body; raises `PayloadError`."""
    if not isinstance(body, Mapping):
        raise PayloadError(f"a QUBO cannot be read from a {type(body).__name__}", hint=HINT)
    if body.get("type") == "BinaryQuadraticModel":
        return _from_dimod(body)
    unknown = [str(key) for key in body if key not in ("linear", "quadratic", "offset")]
    if unknown:
        raise PayloadError(f"a QUBO has no part {unknown[0]!r}", hint=HINT)
    index: dict[Any, int] = {}
    variables: list[Any] = []
    linear: list[float] = []
    for variable, bias in _rows(body, "linear", 2):
        key = _key(variable)
        if key in index:
            raise PayloadError(f"variable {_shown(variable)} has two linear biases")
        index[key] = len(variables)
        variables.append(variable)
        linear.append(_bias(bias, variable))
    quadratic: dict[tuple[int, int], float] = {}
    for u, v, bias in _rows(body, "quadratic", 3):
        i, j = index.get(_key(u)), index.get(_key(v))
        if i is None or j is None:
            missing = _shown(u if i is None else v)
            raise PayloadError(f"variable {missing} has no linear bias", hint="give it one of 0.0")
        _couple(quadratic, i, j, _bias(bias, u, v))
    if not variables:
        raise PayloadError("a QUBO needs at least one variable", hint=HINT)
    return Qubo(variables, linear, quadratic, _number(body.get("offset", 0.0), "the offset"))


def numbered(body: Mapping[str, Any]) -> dict[str, Any]:
    """A program's QUBO with its variables numbered: their labels are any Python values.

    Samplers visit variables in the order of their labels or, if labels of several types have none, as the couplings
    name them. Numbers are given in that order, so that a seed gives the same samples with and without them.
    """
    named = [end for u, v, _ in body["quadratic"] for end in (u, v)] + [variable for variable, _ in body["linear"]]
    labels = list(dict.fromkeys(named))
    with contextlib.suppress(TypeError):
        labels = sorted(labels)
    number = {variable: index for index, variable in enumerate(labels)}
    return {
        "linear": [[number[variable], bias] for variable, bias in body["linear"]],
        "quadratic": [[number[u], number[v], bias] for u, v, bias in body["quadratic"]],
        "offset": body["offset"],
    }


def _from_dimod(body: Mapping[str, Any]) -> Qubo:
    """What `dimod.BinaryQuadraticModel.to_serializable()` gives; spins s become bits x = (s + 1) / 2."""
    if body.get("use_bytes"):
        raise PayloadError("a dimod model with bytes is no JSON", hint="bqm.to_serializable(use_bytes=False)")
    labels, alone = _list(body, "variable_labels"), _list(body, "linear_biases")
    heads, tails, biases = (_list(body, f"quadratic_{part}") for part in ("head", "tail", "biases"))
    if not labels or len(labels) != len(alone) or not len(heads) == len(tails) == len(biases):
        raise PayloadError("a dimod model whose lists do not fit each other")
    if len(dict.fromkeys(_key(label) for label in labels)) != len(labels):
        raise PayloadError("a dimod model with a variable twice")
    linear = [_number(bias, "a linear bias") for bias in alone]
    quadratic: dict[tuple[int, int], float] = {}
    for u, v, bias in zip(heads, tails, biases, strict=True):
        if not all(isinstance(end, int) and 0 <= end < len(labels) for end in (u, v)):
            raise PayloadError(f"a dimod model that couples variables {u!r} and {v!r}, of {len(labels)}")
        _couple(quadratic, u, v, _number(bias, "a quadratic bias"))
    offset = _number(body.get("offset", 0.0), "the offset")
    if body.get("variable_type") not in ("BINARY", "SPIN"):
        raise PayloadError(f"a dimod model of type {body.get('variable_type')!r} is neither BINARY nor SPIN")
    if body["variable_type"] == "SPIN":
        offset += sum(quadratic.values()) - sum(linear)
        linear = [2 * bias for bias in linear]
        for (u, v), bias in quadratic.items():
            linear[u] -= 2 * bias
            linear[v] -= 2 * bias
        quadratic = {pair: 4 * bias for pair, bias in quadratic.items()}
    return Qubo(list(labels), linear, quadratic, offset)


def _couple(quadratic: dict[tuple[int, int], float], u: int, v: int, bias: float) -> None:
    if u == v:
        raise PayloadError("a quadratic bias needs two variables", hint="x * x is x: make it a linear bias")
    pair = (v, u) if (v, u) in quadratic else (u, v)
    quadratic[pair] = quadratic.get(pair, 0.0) + bias


def _list(body: Mapping[str, Any], part: str) -> Sequence[Any]:
    rows = body.get(part, [])
    if not isinstance(rows, list | tuple):
        raise PayloadError(f"a QUBO's {part} must be a list, not {type(rows).__name__}", hint=HINT)
    return rows


def _rows(body: Mapping[str, Any], part: str, width: int) -> Sequence[Any]:
    rows = _list(body, part)
    for row in rows:
        if not isinstance(row, list | tuple) or len(row) != width:
            raise PayloadError(f"a QUBO's {part} has an entry that is not {width} long", hint=HINT)
    return rows


def _key(variable: Any) -> Any:
    """What a label is known by: 1, "1", 1.0 and true are four labels. Most are text or whole numbers, as they are."""
    kind = type(variable)
    return variable if kind is str or kind is int else ("json", _json(variable))


def _shown(variable: Any) -> str:
    return _json(variable)[:100]


def _json(variable: Any) -> str:
    try:
        return json.dumps(variable, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise PayloadError(f"a QUBO's variable must be JSON, not {type(variable).__name__}") from None


def _bias(bias: Any, *labels: Any) -> float:
    """Its place is only put into words for one that is wrong: there may be a million of them."""
    kind = type(bias)
    if (kind is float or kind is int) and -1e300 < bias < 1e300:
        return float(bias)
    return _number(bias, f"the bias of {' and '.join(_shown(label) for label in labels)}")


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PayloadError(f"{what} must be a number, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise PayloadError(f"{what} must be finite")
    return number
