"""The command line of a quantum step, read as a payload.

    qloom step quantum PAYLOAD RESULT [--shots N] [--device NAME] [--seconds S] [-- COMMAND ...]

On a node the same words run a solver, or the command that stands in for the device.
"""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamflow.core.exception import WorkflowExecutionException


@dataclass(frozen=True)
class QuantumStep:
    """What is sent, and where the answer goes."""

    form: dict[str, Any]
    payload: Path
    result: Path
    asked: Path | None  # a file that only emulations write, and that the workflow expects all the same
    empty: bool  # a QUBO without variables: its answer is known


def read_step(step: str, command: list[str], workdir: str | None) -> QuantumStep:
    """The payload of a step; `command` is as StreamFlow would hand it to a shell."""
    words = shlex.split(" ".join(command))
    place = next((at for at in range(len(words) - 1) if words[at : at + 2] == ["step", "quantum"]), None)
    if place is None:
        raise WorkflowExecutionException(
            f"Step {step} is put on a QPU, which takes payloads, not shell commands such as {words[0]!r}: "
            "its command must be `qloom step quantum PAYLOAD RESULT`, or it belongs to another location"
        )
    parser = argparse.ArgumentParser(prog="qloom step quantum", exit_on_error=False)
    for name in ("payload", "result"):
        parser.add_argument(name)
    parser.add_argument("--shots", type=int)
    parser.add_argument("--seconds", type=float)
    for name in ("--device", "--kind", "--seed", "--asked"):
        parser.add_argument(name)
    parser.add_argument("--send", action="store_true")  # so it is, anyway
    own = words[place + 2 :]
    own = own[: own.index("--")] if "--" in own else own
    try:
        given = parser.parse_args(own)
        folder = Path(workdir or ".")
        form = _form(folder / given.payload, given)
    except (argparse.ArgumentError, SystemExit, OSError, ValueError) as error:
        raise WorkflowExecutionException(f"Step {step}: its payload cannot be read: {error}") from None
    body = form["body"]
    empty = form["kind"] == "qubo" and isinstance(body, dict) and not (body.get("linear") or body.get("quadratic"))
    is_known = empty and body.get("type") is None
    asked = folder / given.asked if given.asked else None
    return QuantumStep(form, folder / given.payload, folder / given.result, asked, is_known)


def _form(path: Path, given: argparse.Namespace) -> dict[str, Any]:
    text = path.read_text()
    content: Any = json.loads(text) if path.suffix != ".qasm" else text
    kind = given.kind or {".qasm": "openqasm3"}.get(path.suffix, "qubo")
    is_envelope = isinstance(content, dict) and {"kind", "body"} <= content.keys()
    form = content if is_envelope else {"kind": kind, "body": _as_lists(content) if kind == "qubo" else content}
    said = {"shots": given.shots, "seconds": given.seconds, "device": given.device}
    return {**form, **{name: value for name, value in said.items() if value is not None}}


def _as_lists(body: Any) -> Any:
    """Job files may write the linear part as a table; the broker takes lists, with every variable in the first."""
    if not isinstance(body, dict) or body.get("type") == "BinaryQuadraticModel":
        return body
    linear, quadratic = body.get("linear") or {}, body.get("quadratic") or []
    biases = dict(linear.items() if isinstance(linear, dict) else linear)
    for u, v, _ in quadratic:
        biases.setdefault(u, 0.0)
        biases.setdefault(v, 0.0)
    return {**body, "linear": [[name, bias] for name, bias in biases.items()], "quadratic": list(quadratic)}


def answer(result: Any) -> str:
    """What the step's result file holds: the best sample of a QUBO, or the device's result as it is."""
    if isinstance(result, dict) and result.get("form") == "samples":
        result = {"sample": {str(name): value for name, value in result["values"]}, "energy": result["energy"]}
    return json.dumps(result, indent=1) + "\n"
