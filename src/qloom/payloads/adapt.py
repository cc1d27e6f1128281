"""Payloads from what users have: a QUBO, a circuit, OpenQASM text, a Pulser sequence, a payload of their own making.

What makes a payload of an object is found by the package that the object's type is from, so that nothing is imported
that its user has not imported. Another package announces an adapter as an entry point of the group `qloom.payloads`
under the name of the package whose objects it takes; `adapt(object, values)` returns a `Payload`.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

from qloom.answers import AtomCounts, Counts, Samples
from qloom.errors import PayloadError
from qloom.model import Payload, PayloadFacts
from qloom.payloads.circuits import CircuitRows, circuit_payload, read_entries
from qloom.payloads.qubo import numbered
from qloom.plugins import Registry

Adapter = Callable[[Any, Any], Payload]
ADAPTERS: Registry[Adapter] = Registry(
    "qloom.payloads",
    "payload adapter",
    {
        "dimod": "qloom.payloads.adapt:from_dimod",
        "qiskit": "qloom.payloads.qiskit:adapt",
        "pulser": "qloom.payloads.pulser:adapt",
    },
    expected="a function of an object and values",
    check=callable,
)
HINT = "give a dimod BinaryQuadraticModel or a dictionary {(u, v): bias}"
TAKEN = "a QUBO, a QuantumCircuit, OpenQASM text, a list of circuits, a Pulser sequence or a qloom.Payload"
WITHOUT_SHOTS = ("delay", "command", "qrmi")


def to_payload(
    problem: Any, *, shots: int | None = None, seconds: float | None = None, device: str | None = None
) -> Payload:
    """What a QPU is given for an object; raises `PayloadError` with one line for what it cannot be given.

    `shots` None is the usual number of its kind. A payload that is given as such keeps what is not said here.
    """
    payload = _adapted(problem, None)
    if seconds is not None:
        _check_seconds(seconds)
    if shots is not None:
        _check_shots(shots)
        if payload.kind in WITHOUT_SHOTS:
            reason = "has its own shots" if payload.kind == "qrmi" else "has no shots"
            raise PayloadError(f"a payload of kind {payload.kind} {reason}", hint="leave out shots=")
    if shots is None and seconds is None and device is None:
        return payload
    return replace(
        payload,
        shots=payload.shots if shots is None else shots,
        seconds=payload.seconds if seconds is None else seconds,
        device=device or payload.device,
    )


def _adapted(problem: Any, values: Any) -> Payload:
    if isinstance(problem, Payload) and values is None:
        return problem
    if isinstance(problem, Mapping) and values is None:
        return qubo(problem)
    if isinstance(problem, str):
        return _from_text(problem, values)
    if isinstance(problem, list | tuple) and values is None:
        return _from_several(problem)
    adapter = _adapter_of(problem)
    if adapter is None:
        raise PayloadError(f"a quantum call takes {TAKEN}, not {type(problem).__name__}")
    return adapter(problem, values)


def _adapter_of(problem: Any) -> Adapter | None:
    for kind in type(problem).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in ADAPTERS:
            return ADAPTERS[package]
    return None


def _from_several(parts: list[Any] | tuple[Any, ...]) -> Payload:
    """A pair of a circuit or sequence and its values, an Ising model (h, J), or circuits that share a task."""
    if isinstance(parts, tuple) and len(parts) == 2:
        first, second = parts
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            return ising(first, second)
        if not isinstance(second, str) and _adapter_of(second) is None and not _is_bound(second):
            return _adapted(first, second)
    payloads = [_adapted(part, None) for part in parts]
    if not payloads:
        raise PayloadError("the list of circuits is empty", hint=f"a quantum call takes {TAKEN}")
    other = next((payload for payload in payloads if payload.kind != "openqasm3"), None)
    if other is not None:
        raise PayloadError(f"only circuits can share a task, not a payload of kind {other.kind!r}")
    entries = [entry for payload in payloads for entry in read_entries(payload.value)]
    return circuit_payload(entries, name=payloads[0].name)


def _is_bound(part: Any) -> bool:
    """Whether a part is itself a circuit with values."""
    return isinstance(part, tuple) and bool(part) and (isinstance(part[0], str) or _adapter_of(part[0]) is not None)


def _from_text(text: str, values: Any) -> Payload:
    """OpenQASM 3 as it is; OpenQASM 2 is converted here, since no device is given it."""
    first = text.lstrip().partition(";")[0].split()
    if first[:1] == ["OPENQASM"] and first[-1].partition(".")[0] == "2":
        if importlib.util.find_spec("qiskit") is None:
            raise PayloadError("OpenQASM 2 is converted by Qiskit", hint="pip install 'qloom[qiskit]'")
        from qloom.payloads.qiskit import adapt, read_openqasm2

        return adapt(read_openqasm2(text), values)
    rows = _rows(values)
    return circuit_payload([CircuitRows(text, rows)], single=values is None or not _is_table(values))


def _is_table(values: Any) -> bool:
    return getattr(values, "ndim", 1) > 1 or (
        isinstance(values, list | tuple) and bool(values) and _is_row(values[0])
    )


def _is_row(value: Any) -> bool:
    return isinstance(value, list | tuple) or getattr(value, "ndim", 0) == 1


def _rows(values: Any) -> tuple[tuple[float, ...], ...]:
    """Values of a text's inputs in the order of their declaration: one set, or several."""
    if values is None:
        return ((),)
    rows = list(values) if _is_table(values) else [values]
    try:
        return tuple(tuple(float(value) for value in row) for row in rows)
    except (TypeError, ValueError):
        raise PayloadError("the values of a circuit are numbers, or lists of numbers") from None


# QUBOs and delays


def delay(seconds: float, answer: Any = None) -> Payload:
    """A payload that only takes time on the device, and comes back with a given answer: to try strategies with."""
    if not 0 <= seconds < float("inf"):
        raise PayloadError(f"a delay cannot be {seconds} seconds")
    return Payload(kind="delay", body=answer, seconds=seconds, name="delay")


def qubo(problem: Any, *, shots: int = 100, seconds: float | None = None, device: str | None = None) -> Payload:
    """A quadratic unconstrained binary optimisation problem: a dictionary, or a dimod model."""
    _check_seconds(seconds)
    _check_shots(shots)
    options: dict[str, Any] = {}
    if type(problem).__module__.startswith("dimod") and hasattr(problem, "linear"):
        if problem.vartype.name == "SPIN":
            options["vartype"] = "SPIN"
        problem = problem.change_vartype("BINARY", inplace=False)
        linear = [[variable, float(bias)] for variable, bias in problem.linear.items()]
        quadratic = [[u, v, float(bias)] for (u, v), bias in problem.quadratic.items()]
        body: dict[str, Any] = {"linear": linear, "quadratic": quadratic, "offset": float(problem.offset)}
    elif isinstance(problem, Mapping):
        if not problem:
            raise PayloadError("the QUBO has no variables")
        body = _from_dictionary(problem)
    else:
        raise PayloadError(f"expected a QUBO, got {type(problem).__name__}", hint=HINT)
    biases = [entry[-1] for part in ("linear", "quadratic") for entry in body[part]]
    if not all(math.isfinite(bias) for bias in [*biases, body["offset"]]):
        raise PayloadError("a QUBO's biases must be finite numbers")
    facts = PayloadFacts(size=len(body["linear"]))  # all that a device of a job has to know; brokers read the rest
    return Payload("qubo", body, shots, seconds, device, name="qubo", options=options, facts=facts)


def ising(h: Mapping[Any, Any], J: Mapping[Any, Any], *, shots: int = 100) -> Payload:
    """An Ising model: fields {variable: bias} and couplings {(u, v): bias} of spins of -1 and 1."""
    import dimod

    try:
        return qubo(dimod.BinaryQuadraticModel.from_ising(dict(h), dict(J)), shots=shots)
    except (TypeError, ValueError):
        raise PayloadError("this is no Ising model", hint="give ({variable: bias}, {(u, v): bias})") from None


def from_dimod(model: Any, values: Any = None) -> Payload:
    """A dimod model, which has no parameters."""
    if values is not None:
        raise PayloadError("a QUBO has no parameters to give values of")
    return qubo(model)


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


def _check_shots(shots: Any) -> None:
    if isinstance(shots, bool) or not isinstance(shots, int) or shots < 1:
        raise PayloadError(f"shots must be a whole number of at least 1, not {shots!r}")


def _check_seconds(seconds: Any) -> None:
    if seconds is not None and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf")
    ):
        raise PayloadError(f"expected_s must be a finite number of seconds, not {seconds!r}")


# On the way to a device and back


def wire_body(payload: Payload) -> Any:
    """A body as solvers and brokers take it. JSON has no tuples, so a QUBO's variables are sent as numbers."""
    return numbered(payload.body) if payload.kind == "qubo" else payload.value


def program_answer(payload: Payload, answer: Any) -> Any:
    """A solver's answer as a program is given it (`answers.py`). What a vendor answers in its own form stays so."""
    if payload.kind == "qubo":
        return _samples(payload, answer)
    if isinstance(answer, list):
        return [program_answer(payload, one) for one in answer] if payload.kind == "openqasm3" else answer
    if not isinstance(answer, Mapping) or answer.get("form") != "counts":
        return answer
    counts, shots = dict(answer["counts"]), int(answer["shots"])
    if payload.kind == "pulser":
        return AtomCounts(counts, tuple(answer["atoms"]), shots)
    return Counts(counts, tuple((str(name), int(size)) for name, size in answer["registers"]), shots)


def _samples(payload: Payload, answer: Mapping[str, Any]) -> Samples:
    """With a program's labels: the device was given numbers."""
    best = [int(value) for _, value in answer["values"]]
    variables = [variable for variable, _ in payload.body["linear"]]
    rows = answer.get("samples") or [best]
    return Samples(
        dict(zip(variables, best, strict=True)),
        float(answer["energy"]),
        tuple("".join("1" if value else "0" for value in row) for row in rows),
        tuple(float(energy) for energy in answer.get("energies") or [answer["energy"]]),
        tuple(int(number) for number in answer.get("occurrences") or [payload.shots]),
        int(answer.get("shots", payload.shots)),
        str(payload.options.get("vartype", "BINARY")),
    )
