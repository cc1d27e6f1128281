"""D-Wave's "qp" encoding of problems and answers, read and written strictly. Pure: no request, no broker.

Biases are doubles, little endian, in base64: `lin` has one for each qubit (NaN: the qubit is not used), `quad` one
for each coupler whose ends are both used, in the order in which the solver lists them. An answer has a row of bits
for each solution, packed into bytes with the most significant bit first.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qloom.broker.doors.annealers import (
    H_RANGE,
    J_RANGE,
    LEAST_ANNEAL_US,
    MOST_ANNEAL_US,
    TimeScale,
    known_couplings,
)
from qloom.broker.problems import NotFound
from qloom.broker.requests import TaskRequest
from qloom.device import DeviceTarget
from qloom.devices.schema import target_from
from qloom.errors import PayloadError
from qloom.model import Payload

MOST_READS = 2**31 - 1  # an answer counts in 32 bits; devices take far fewer


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class SolverVersion(_Strict):
    """Which graph a problem was made for."""

    graph_id: str | None = None


class SolverName(_Strict):
    """The solver that a problem is for."""

    name: str
    version: SolverVersion | None = None


class QpProblem(_Strict):
    """Biases, encoded."""

    format: Literal["qp"]
    lin: str
    quad: str
    offset: float = 0.0


class SampleParameters(_Strict):
    """What may be said of how a problem is solved; these are the parameters that a solver publishes."""

    num_reads: Annotated[int, Field(ge=1, le=MOST_READS)] = 1
    annealing_time: Annotated[float, Field(ge=LEAST_ANNEAL_US, le=MOST_ANNEAL_US)] | None = None
    answer_mode: Literal["histogram", "raw"] = "histogram"
    max_answers: Annotated[int, Field(ge=1)] | None = None
    auto_scale: bool = True


class SubmittedProblem(_Strict):
    """One problem as the client submits it."""

    solver: SolverName
    data: QpProblem
    type: Literal["qubo", "ising"]
    params: SampleParameters
    label: Annotated[str, Field(max_length=1024)] | None = None


def read_problems(body: bytes) -> list[Any]:
    """The problems in a request, unread; raises `PayloadError`."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise PayloadError("the request is not JSON") from None
    if not isinstance(found, list) or not found:
        raise PayloadError("a list of problems was expected")
    return found


def problem_task(values: Any, solvers: Mapping[str, Mapping[str, Any]]) -> TaskRequest:
    """The task that a problem is; raises a `QloomError` for one that cannot be taken."""
    try:
        problem = SubmittedProblem.model_validate_json(json.dumps(values))
    except (ValidationError, ValueError) as error:
        raise PayloadError(_reason(error)) from None
    name, version, params = problem.solver.name, problem.solver.version, problem.params
    if name not in solvers:
        raise NotFound(f"there is no solver {name[:100]!r}", hint=f"there is: {', '.join(solvers)}")
    solver = solvers[name]
    if version is not None and version.graph_id not in (None, solver["graph_id"]):
        raise PayloadError(f"the graph of solver {name} has changed", hint="get the solver again")
    body = decode_problem(problem, target_from(solver["target"]))
    seconds = None  # as the device takes by itself
    if solver["scale"] is not None and params.annealing_time is not None:
        seconds = TimeScale(**solver["scale"]).access_us(params.num_reads, params.annealing_time) * 1e-6
    note = {
        "door": "dwave",
        "type": problem.type,
        "label": problem.label,
        "reads": params.num_reads,
        "annealing_us": params.annealing_time,
        "raw": params.answer_mode == "raw",
        "max_answers": params.max_answers,
    }
    label = problem.label or ""
    shown = label if label.isprintable() and 0 < len(label) <= 200 else "dwave"
    payload = Payload("qubo", body, params.num_reads, seconds)
    return TaskRequest(payload, device=name, name=shown, note=json.dumps(note))


def _reason(error: ValidationError | ValueError) -> str:
    if not isinstance(error, ValidationError):
        return "the problem cannot be read"
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(str(step)[:50] for step in first['loc'])}: {first['msg']}"


def decode_problem(problem: SubmittedProblem, target: DeviceTarget) -> dict[str, Any]:
    """A problem as dimod writes a model, over the numbers of the qubits that it uses."""
    linear = _doubles(problem.data.lin, "lin")
    if len(linear) != target.qubits:
        raise PayloadError(f"lin has {len(linear)} biases, and the solver has {target.qubits} qubits")
    place = {qubit: index for index, qubit in enumerate(q for q, bias in enumerate(linear) if not math.isnan(bias))}
    if not place:
        raise PayloadError("the problem uses no qubit")
    pairs = [(u, v) for u, v in known_couplings(target) if u in place and v in place]
    biases = _doubles(problem.data.quad, "quad")
    if len(biases) != len(pairs):
        raise PayloadError(f"quad has {len(biases)} biases, and {len(pairs)} couplers join the qubits in use")
    if not problem.params.auto_scale:
        _check_range("h_range", H_RANGE, [linear[qubit] for qubit in place])
        _check_range("extended_j_range", J_RANGE, biases)
    coupled = [(u, v, bias) for (u, v), bias in zip(pairs, biases, strict=True) if bias != 0.0]
    return {
        "type": "BinaryQuadraticModel",
        "variable_type": "SPIN" if problem.type == "ising" else "BINARY",
        "use_bytes": False,
        "variable_labels": list(place),
        "linear_biases": [linear[qubit] for qubit in place],
        "quadratic_head": [place[u] for u, _, _ in coupled],
        "quadratic_tail": [place[v] for _, v, _ in coupled],
        "quadratic_biases": [bias for _, _, bias in coupled],
        "offset": problem.data.offset,
    }


def _check_range(name: str, limits: tuple[float, float], biases: list[float]) -> None:
    if any(not limits[0] <= bias <= limits[1] for bias in biases):
        raise PayloadError(f"a bias is outside of {name} {list(limits)}", hint="let auto_scale be true")


def _doubles(text: str, what: str) -> list[float]:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise PayloadError(f"{what} is not base64") from None
    if len(raw) % 8:
        raise PayloadError(f"{what} is no list of doubles")
    values = list(struct.unpack(f"<{len(raw) // 8}d", raw))
    if any(math.isinf(value) or (what == "quad" and math.isnan(value)) for value in values):
        raise PayloadError(f"a bias in {what} is not finite")
    return values


def encode_answer(answer: Mapping[str, Any], qubits: int, *, raw: bool, max_answers: int | None) -> dict[str, Any]:
    """Samples in the "qp" encoding; `raw` has a row for each read instead of one for each different solution."""
    rows = list(zip(answer["samples"], answer["energies"], answer["occurrences"], strict=True))
    if raw:
        rows = [(values, energy, 1) for values, energy, count in rows for _ in range(count)]
    rows = rows[:max_answers]
    return {
        "format": "qp",
        "num_variables": qubits,
        "active_variables": _packed("i", answer["variables"]),
        "energies": _packed("d", [energy for _, energy, _ in rows]),
        "solutions": base64.b64encode(b"".join(_bits(values) for values, _, _ in rows)).decode(),
        "num_occurrences": _packed("i", [count for _, _, count in rows]),
    }


def _packed(kind: str, values: list[Any]) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}{kind}", *values)).decode()


def _bits(values: list[int]) -> bytes:
    size = -(-len(values) // 8)
    return int("".join(map(str, values)).ljust(8 * size, "0"), 2).to_bytes(size, "big")
