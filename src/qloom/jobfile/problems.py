"""What pydantic found wrong with a job file, as one line in the words of the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from qloom.errors import closest
from qloom.jobfile.model import (
    PHASE_TAGS,
    ClassicalPhase,
    JobFile,
    Loop,
    PayloadPhase,
    QuantumCommandPhase,
    TaskTable,
    Until,
)

_NEEDED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
_LISTS = {"command": "a list of text", "outputs": "a list of text", "files": "a list of text"}
_TABLES = {"phase": "[[phase]] tables", "task": "[[phase.task]] tables"}
_HINTS = {
    "max_iterations": "a loop needs a limit: max_iterations = 10",
    "task": "write [[phase.task]] and its command",
}
_UNION = {"bool": True, "int": True, "float": True, "str": True}  # the last step of a value that may be any of these
_MODELS = (TaskTable, ClassicalPhase, PayloadPhase, QuantumCommandPhase, Until, Loop, JobFile)


def first_problem(error: ValidationError) -> str:
    """Where the first problem is, and what it is: 'phase 2, task 1: command must be a list of text'."""
    problem = error.errors()[0]
    steps = list(problem["loc"])
    if steps[0] == "phase" and steps[2:3] and steps[2] in PHASE_TAGS:
        del steps[2]
    elif len(steps) > 1 and steps[-1] in _UNION:
        steps.pop()
        return f"{_place(steps[:-1])}: {steps[-1]} must be a number, text, true or false"
    own = problem["type"] in ("value_error", "kind") or not isinstance(steps[-1], str)
    where, what = _place(steps if own else steps[:-1]), _what(problem, steps)
    return f"{where}: {what}" if where else what


def _place(steps: Sequence[int | str]) -> str:
    """The tables around the value: phase 2, task 1."""
    words: list[str] = []
    for step in steps:
        if isinstance(step, int) and words:
            words[-1] += f" {step + 1}"
        else:
            words.append(str(step))
    return ", ".join(words)


def _what(problem: Any, steps: Sequence[int | str]) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    key = steps[-1] if isinstance(steps[-1], str) else ""
    subject = f"{key} " if key else ""
    if kind == "value_error":
        return str(context["error"])
    if kind == "kind":
        return str(problem["msg"])
    if kind == "extra_forbidden":
        return f"{key} is not a known key{_closest(key)}"
    if kind == "missing":
        return f"{key} is missing" + (f" ({_HINTS[key]})" if key in _HINTS else "")
    if kind == "list_type":
        return f"{subject}must be {_LISTS.get(key) or _TABLES.get(key) or 'a list'}"
    if kind in _NEEDED:
        return f"{subject}must be {_NEEDED[kind]}"
    if kind in ("string_too_short", "too_short"):
        return f"{subject}must not be empty"
    if kind == "greater_than_equal":
        return f"{subject}must be at least {context['ge']:g}"
    if kind == "literal_error":
        return f"{subject}must be {context['expected']}"
    return f"{subject}is wrong: {problem['msg']}"


def _closest(key: str) -> str:
    known = dict.fromkeys(name for model in _MODELS for name in model.model_fields)
    question = closest(key, known)
    return f" ({question})" if question else ""
