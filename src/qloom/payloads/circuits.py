"""Circuits in a payload of kind `openqasm3`: templates and the exact numbers that they are run with.

A body is a list of entries, each one template and a row of numbers for every circuit that is made from it:

    [{"template": "OPENQASM 3.0; ... input float[64] _p0; ... rx(_p0) q[0]; ...", "rows": [[0.1], [0.2]]}]

A row has the values of the template's inputs in the order in which the template declares them. Numbers are doubles,
and JSON keeps doubles exactly: a circuit is known by its template and its numbers, and nothing is rounded on the way.
(Writers of OpenQASM round: Qiskit writes pi/2 + 5e-10 as pi/2.) All circuits of a body are one task with one set-up.
They are numbered through the entries and rows, and the answer has their counts in that order.

A text stands for an entry without inputs. A body that is one text, not a list, is answered by one answer and not by a
list. This module knows the form of a body; `openqasm3.py` reads what is in a template.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from qloom.errors import PayloadError
from qloom.model import Payload

KIND = "openqasm3"
DEFAULT_SHOTS = 1024  # as Qiskit's samplers have it
HINT = 'a circuit is OpenQASM 3 text, or {"template": text, "rows": [[number, ...], ...]}'


@dataclass(frozen=True)
class CircuitRows:
    """A template in OpenQASM 3, and for each circuit that is made from it the values of its inputs."""

    template: str
    rows: tuple[tuple[float, ...], ...] = ((),)


def circuit_payload(
    entries: Sequence[CircuitRows],
    *,
    single: bool = False,
    shots: int = DEFAULT_SHOTS,
    seconds: float | None = None,
    device: str | None = None,
    name: str = "circuit",
) -> Payload:
    """One task of all circuits of the entries. With `single` its answer is that of its only circuit, and no list.

    Entries that follow each other and share a template become one.
    """
    body: list[dict[str, Any]] = []
    for entry in entries:
        rows = [list(_numbers(row)) for row in entry.rows]
        if body and body[-1]["template"] == entry.template:
            body[-1]["rows"] += rows
        else:
            body.append({"template": entry.template, "rows": rows})
    if single:
        if len(body) != 1 or len(body[0]["rows"]) != 1:
            raise PayloadError("a single circuit was expected")
        return Payload(KIND, body[0], shots, seconds, device, name)
    return Payload(KIND, body, shots, seconds, device, name)


def is_single(body: Any) -> bool:
    """Whether a body is answered by one answer rather than by a list of them."""
    return not isinstance(body, list | tuple)


def read_entries(body: Any) -> list[CircuitRows]:
    """The entries of a body; raises `PayloadError` if it is of no known form."""
    entries = [_entry(part) for part in (body if isinstance(body, list | tuple) else [body])]
    if not entries:
        raise PayloadError("the payload has no circuit", hint=HINT)
    return entries


def _entry(part: Any) -> CircuitRows:
    if isinstance(part, str):
        return CircuitRows(part)
    if not isinstance(part, dict) or not isinstance(part.get("template"), str) or len(part) != 2:
        raise PayloadError(f"a circuit cannot be read from a {type(part).__name__}", hint=HINT)
    rows = part.get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        raise PayloadError("the rows of a template are a list of lists of numbers", hint=HINT)
    return CircuitRows(part["template"], tuple(_numbers(row) for row in rows))


def _numbers(row: Iterable[Any]) -> tuple[float, ...]:
    values = []
    for value in row:
        kind = type(value)
        if not (kind is float or kind is int) or not math.isfinite(value):
            raise PayloadError(f"the values of a circuit are finite numbers, not {str(value)[:40]!r}")
        values.append(float(value))
    return tuple(values)
