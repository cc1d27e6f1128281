"""The files between the phases of one job, and what they hold: a payload, its answer, a loop's condition.

What the program itself reads comes from the results of tasks, hence from the journal; the disk follows. So a resumed
run, or one in virtual time, takes the same path as the run that was recorded.
"""

from __future__ import annotations

import json
import math
import operator
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from qloom.answers import Answer, Counts
from qloom.errors import InputError, JobError, PayloadError
from qloom.jobfile.model import LIMITS, Until
from qloom.jobfile.read import input_problem
from qloom.journal.results import write_atomically
from qloom.model import CommandResult, Payload, Sample
from qloom.payloads.adapt import qubo, to_payload
from qloom.payloads.pulser import read_sequence

NO_DIRECTORY = "(no work directory: a job file cannot run with in_memory on real nodes)"
HINT = 'write {"linear": {"a": -1}, "quadratic": [["a", "b", 2]], "offset": 0}, or a dimod model\'s to_serializable()'
KINDS = "a payload is OpenQASM, a Pulser sequence (to_abstract_repr), or a QUBO in JSON"
OPENQASM = re.compile(r"(\s|//[^\n]*\n|/\*.*?\*/)*OPENQASM\b", re.DOTALL)
SEQUENCE_KEYS = {"register", "operations"}
QUBO_SHOTS = 100
_COMPARE = {"at_least": operator.ge, "at_most": operator.le, "above": operator.gt, "below": operator.lt}


class WorkDirectory(str):
    """Where commands run. All work directories are one to the journal: a task is not known by where it ran."""

    __slots__ = ()
    __qloom_digest__ = "work directory of a job file"

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # workers need not import this module


class WorkFiles:
    """Files in the work directory; `directory` None (virtual time): nothing is written."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = None if directory is None else directory.resolve()
        self._contents: dict[str, bytes] = {}
        self.cwd = WorkDirectory(self._directory or NO_DIRECTORY)

    def copy_inputs(self, source: Path, names: Iterable[str], read: Iterable[str]) -> None:
        """Put input files in place; the content of those in `read` is remembered."""
        wanted = list(read)
        for name in names:
            if problem := input_problem(source, name):
                raise InputError(f"files: {problem}")
            try:
                if name in wanted:
                    self._contents[name] = (source / name).read_bytes()
                if self._directory is not None:
                    _copy(source / name, self._directory / name)
            except OSError as error:
                raise InputError(f"cannot copy {source / name}: {error.strerror}") from None

    def content(self, name: str) -> bytes | None:
        """What a file holds; None if that is not known, because in virtual time its command was not run."""
        if name not in self._contents and self._directory is not None:
            raise JobError(f"{name} is needed and no phase has made it", hint="see the outputs of the phases")
        return self._contents.get(name)

    def put(self, name: str, content: bytes | None) -> None:
        """Note what a file holds, and see to it that the disk agrees."""
        if content is None:
            self._contents.pop(name, None)
            return
        self._contents[name] = content
        if self._directory is not None:
            path = self._directory / name
            if not path.is_file() or path.read_bytes() != content:
                write_atomically(path, content)

    def take(self, task: str, names: Iterable[str], result: CommandResult) -> None:
        """Note the files that a command handed over."""
        for name in names:
            if name not in result.files and self._directory is not None:
                raise JobError(f"task {task} did not make {name}", hint="its outputs say that it does")
            self.put(name, result.files.get(name))


def _copy(origin: Path, target: Path) -> None:
    """All of the file or nothing; a resumed job keeps what it has, which commands may have changed."""
    if target.exists():
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy(origin, temporary)
    temporary.replace(target)


def read_payload(
    name: str, content: bytes, *, shots: int | None, seconds: float | None, device: str | None
) -> Payload:
    """The payload that a file holds: OpenQASM 3 or 2, a Pulser sequence, or a QUBO."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise PayloadError(f"{name} is not text", hint=KINDS) from None
    body = _parsed(text)
    is_sequence = isinstance(body, dict) and body.keys() >= SEQUENCE_KEYS
    if not is_sequence and OPENQASM.match(text) is None:
        return read_qubo(name, content, shots=QUBO_SHOTS if shots is None else shots, seconds=seconds, device=device)
    try:
        problem = Payload("pulser", read_sequence(body)) if is_sequence else text
        return to_payload(problem, shots=shots, seconds=seconds, device=device)
    except PayloadError as error:
        raise PayloadError(f"{name}: {error.message}", hint=error.hint) from None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


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
        raise PayloadError(f"{value!r} is not a finite number")
    return number


def write_answer(answer: Answer) -> bytes:
    """The answer of a device as commands read it: the best sample, or counts of a circuit or a sequence."""
    if isinstance(answer, Sample):
        return write_sample(answer)
    found: dict[str, Any] = {"counts": dict(answer.counts), "shots": answer.shots}
    if isinstance(answer, Counts):
        found["registers"] = dict(answer.registers)
    else:
        found["atoms"] = list(answer.atoms)
    return json.dumps(found, indent=1).encode() + b"\n"


def write_sample(sample: Sample) -> bytes:
    """The best sample of a QUBO and its energy."""
    values = {str(variable): value for variable, value in sample.values.items()}
    return json.dumps({"sample": values, "energy": sample.energy}, indent=1).encode() + b"\n"


def read_value(until: Until, name: str, content: bytes) -> Any:
    """The value that the condition is about."""
    try:
        value = json.loads(content)
    except ValueError as error:
        raise JobError(f"the loop's condition: {name} is not JSON: {error}") from None
    for step in until.key.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            there = f"there is: {', '.join(value)}" if isinstance(value, dict) and value else None
            raise JobError(f"the loop's condition: {name} has no {until.key}", hint=there)
    return value


def is_met(until: Until, name: str, value: Any) -> bool:
    """Whether the loop can end."""
    limit = next(limit for limit in LIMITS if limit in until.model_fields_set)
    wanted = getattr(until, limit)
    if limit == "equals":
        return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise JobError(f"the loop's condition: {until.key} in {name} is {value!r}, not a number")
    return bool(_COMPARE[limit](value, wanted))
