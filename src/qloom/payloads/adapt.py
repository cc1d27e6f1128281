"""Payloads for QPUs, from what users have: a dimod model, a QUBO as a dictionary, or a plain delay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from qloom.errors import PayloadError
from qloom.model import Payload, PayloadFacts
from qloom.payloads.qubo import best_sample, numbered

HINT = "give a dimod BinaryQuadraticModel or a dictionary {(u, v): bias}"


def delay(seconds: float, answer: Any = None) -> Payload:
    """A payload that only takes time on the device, and comes back with a given answer: to try strategies with."""
    if not 0 <= seconds < float("inf"):
        raise PayloadError(f"a delay cannot be {seconds} seconds")
    return Payload(kind="delay", body=answer, seconds=seconds, name="delay")


def qubo(problem: Any, *, shots: int = 100, seconds: float | None = None, device: str | None = None) -> Payload:
    """A quadratic unconstrained binary optimisation problem."""
    if seconds is not None and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf")
    ):
        raise PayloadError(f"expected_s must be a finite number of seconds, not {seconds!r}")
    if isinstance(shots, bool) or not isinstance(shots, int) or shots < 1:
        raise PayloadError(f"shots must be a whole number of at least 1, not {shots!r}")
    if type(problem).__module__.startswith("dimod") and hasattr(problem, "linear"):
        problem = problem.change_vartype("BINARY", inplace=False)
        linear = [[variable, float(bias)] for variable, bias in problem.linear.items()]
        quadratic = [[u, v, float(bias)] for (u, v), bias in problem.quadratic.items()]
        body: dict[str, Any] = {"linear": linear, "quadratic": quadratic, "offset": float(problem.offset)}
    elif isinstance(problem, Mapping):
        if not problem:
            raise PayloadError("the QUBO has no variables")
        body = _from_dictionary(problem)
    else:
        raise PayloadError(f"a payload of type {type(problem).__name__} is no QUBO", hint=HINT)
    biases = [entry[-1] for part in ("linear", "quadratic") for entry in body[part]]
    if not all(math.isfinite(bias) for bias in [*biases, body["offset"]]):
        raise PayloadError("a QUBO's biases must be finite numbers")
    facts = PayloadFacts(size=len(body["linear"]))  # all that a device of a job has to know; brokers read the rest
    return Payload("qubo", body, shots, seconds, device, name="qubo", facts=facts)


def wire_body(payload: Payload) -> Any:
    """A body as solvers and brokers take it. JSON has no tuples, so a QUBO's variables are sent as numbers."""
    return numbered(payload.body) if payload.kind == "qubo" else payload.value


def program_answer(payload: Payload, answer: Any) -> Any:
    """An answer as a program is given it: a `Sample` for a QUBO, and for any other payload what the solver found."""
    return best_sample(payload.body, answer) if payload.kind == "qubo" else answer


def _from_dictionary(problem: Mapping[Any, Any]) -> dict[str, Any]:
    linear: dict[Any, float] = {}
    quadratic: dict[tuple[Any, Any], float] = {}
    for key, bias in problem.items():
        if not isinstance(key, tuple) or len(key) != 2 or isinstance(bias, bool) or not isinstance(bias, Real):
            raise PayloadError(f"{key!r}: {bias!r} is no entry of a QUBO", hint=HINT)
        u, v = key
        linear.setdefault(u, 0.0)
        linear.setdefault(v, 0.0)
        if u == v:
            linear[u] += float(bias)
        else:
            pair = (v, u) if (v, u) in quadratic else (u, v)
            quadratic[pair] = quadratic.get(pair, 0.0) + float(bias)
    return {
        "linear": [[variable, bias] for variable, bias in linear.items()],
        "quadratic": [[u, v, bias] for (u, v), bias in quadratic.items()],
        "offset": 0.0,
    }
