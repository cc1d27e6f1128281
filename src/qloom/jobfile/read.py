"""Reading a job file: its syntax, its types, and that its parts fit together, before anything runs.

Commands and file names have placeholders: `{name}` is a value, `{{` and `}}` are braces.
"""

from __future__ import annotations

import keyword
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from qloom.errors import InputError
from qloom.jobfile.model import ClassicalPhase, JobFile, PayloadPhase, Phase, QuantumCommandPhase, TaskTable
from qloom.jobfile.problems import first_problem

ALWAYS = ("iteration", "source")  # placeholders that need not be declared
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def read_jobfile(path: Path) -> JobFile:
    """The checked job file; every error is one line that names the file and the place."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the job file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    try:
        file = JobFile.model_validate(values)
        for problem in _problems(file, path.parent):
            raise InputError(f"{path}: {problem}")
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}") from None
    return file


def makes(phase: Phase) -> list[str]:
    """The files that a phase is declared to make, as the job file writes them."""
    match phase:
        case ClassicalPhase():
            return [output for task in phase.task for output in task.outputs]
        case PayloadPhase():
            return [phase.result]  # what a stand-in makes beside it is not always there
        case QuantumCommandPhase():
            return list(phase.outputs)


def read_by_program(file: JobFile) -> list[str]:
    """The files whose content decides what the program does next: they must be in the journal."""
    payloads = [phase.payload for phase in file.phase if isinstance(phase, PayloadPhase)]
    until = [file.loop.until.file] if file.loop is not None and file.loop.until is not None else []
    return payloads + until


def _problems(file: JobFile, source: Path) -> Iterator[str]:
    yield from _parameter_problems(file)
    yield from _text_problems(file)
    yield from _name_problems(file)
    yield from _input_problems(file, source)
    yield from _order_problems(file)
    yield from _loop_problems(file)


def _parameter_problems(file: JobFile) -> Iterator[str]:
    for name in file.parameters:
        if not name.isidentifier() or keyword.iskeyword(name):
            yield f"parameters: {name!r} cannot be the name of a parameter (letters, digits and _; no word of Python)"
        if name in (*ALWAYS, "job"):
            yield f"parameters: {name} is reserved, choose another name"


def _text_problems(file: JobFile) -> Iterator[str]:
    known = [*file.parameters, *ALWAYS]
    for where, words, names in _texts(file):
        for text in (*words, *names):
            if problem := placeholder_problem(text, known):
                yield f"{where}: {problem}"
        for name in names:
            if problem := name_problem(name):
                yield f"{where}: {problem}"


def _texts(file: JobFile) -> Iterator[tuple[str, list[str], list[str]]]:
    """Where texts with placeholders are: the place, words of commands, names of files."""
    yield "files", [], file.files
    if file.loop is not None and file.loop.until is not None:
        yield "loop, until", [], [file.loop.until.file]
    for place, phase in enumerate(file.phase, 1):
        where = f"phase {place}"
        match phase:
            case ClassicalPhase():
                for number, task in enumerate(phase.task, 1):
                    yield f"{where}, task {number}", *_of_task(task)
            case PayloadPhase():
                yield where, [], [phase.payload, phase.result]
                if phase.or_classical is not None:
                    yield f"{where}, or_classical", *_of_task(phase.or_classical)
            case QuantumCommandPhase():
                yield where, phase.command, phase.outputs


def _of_task(task: TaskTable) -> tuple[list[str], list[str]]:
    return task.command, task.outputs


def _name_problems(file: JobFile) -> Iterator[str]:
    seen: dict[str, int] = {}
    for place, phase in enumerate(file.phase, 1):
        if phase.name is not None and phase.name in seen:
            yield f"phase {place}: phase {seen[phase.name]} has the same name, {phase.name!r}"
        if phase.name is not None:
            seen[phase.name] = place
        made = makes(phase)
        if twice := [name for name in made if made.count(name) > 1]:
            yield f"phase {place}: {twice[0]!r} is made twice in the same phase"


def _input_problems(file: JobFile, source: Path) -> Iterator[str]:
    for name in file.files:
        if "{iteration}" in name:
            yield f"files: {name!r} cannot change with the iteration, files are copied once"
        if "{" not in name and (problem := input_problem(source, name)):
            yield f"files: {problem}"


def input_problem(source: Path, name: str) -> str | None:
    """Why a file beside the job file cannot be copied, in words."""
    if (source / name).is_file():
        return None
    return f"{name!r} is not a file" if (source / name).exists() else f"there is no {name!r} in {source}"


def _order_problems(file: JobFile) -> Iterator[str]:
    made = dict.fromkeys(file.files)
    for place, phase in (*file.phases("before"), *file.phases("loop"), *file.phases("after")):
        if isinstance(phase, PayloadPhase) and phase.payload not in made:
            yield (
                f"phase {place}: no earlier phase makes the payload {phase.payload!r} "
                "(name it in the outputs of a task, or in files)"
            )
        made.update(dict.fromkeys(makes(phase)))


def _loop_problems(file: JobFile) -> Iterator[str]:
    if file.loop is None:
        for place, phase in enumerate(file.phase, 1):
            if phase.when is not None:
                yield f"phase {place}: when = {phase.when!r} is of no use without a [loop]"
        return
    in_loop = file.phases("loop")
    if not in_loop:
        yield "loop: no phase is in it (leave out when in the phases to repeat)"
    until = file.loop.until
    if until is not None and until.file not in [name for _, phase in in_loop for name in makes(phase)]:
        yield (
            f"loop, until: no phase of the loop makes {until.file!r} "
            "(name it in the outputs of a task, or as the result of a quantum phase)"
        )


def fill(template: str, values: Mapping[str, str]) -> str:
    """The text with all placeholders replaced."""

    def replace(token: re.Match[str]) -> str:
        name = token[1]
        return values[name] if name is not None else token[0][0]

    return _TOKEN.sub(replace, template)


def placeholder_problem(template: str, known: Iterable[str]) -> str | None:
    """What is wrong with the placeholders of a text, in words."""
    names = list(known)
    for token in _TOKEN.finditer(template):
        if token[0] in ("{", "}"):
            return f"{template!r} has a lone {token[0]!r}: a brace is written twice"
        if token[1] is not None and token[1] not in names:
            return (
                f"{token[0]} in {template!r} is not a parameter: known are "
                f"{', '.join(f'{{{name}}}' for name in names)}, and a brace is written twice"
            )
    return None


def file_name(template: str, values: Mapping[str, str]) -> str:
    """The name of a file in the work directory."""
    name = fill(template, values)
    if problem := name_problem(name):
        raise InputError(problem)
    return name


def name_problem(name: str) -> str | None:
    """Why a name cannot be a file in the work directory, in words."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) in ("", "."):
        return f"{name!r} must be a file inside the work directory: a relative path without '..'"
    return None


def as_text(value: bool | int | float | str) -> str:
    """A parameter as commands see it; truth is spelt as in TOML and JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)
