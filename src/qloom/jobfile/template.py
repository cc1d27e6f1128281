"""Placeholders in commands and file names: `{name}` is a value, `{{` and `}}` are braces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from qloom.errors import InputError

ALWAYS = ("iteration", "source")  # placeholders that need not be declared
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


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
                f"{token[0]} in {template!r} is no parameter: known are "
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
    """Why a name is no file in the work directory, in words."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) in ("", "."):
        return f"{name!r} must be a file inside the work directory: a relative path without '..'"
    return None


def as_text(value: bool | int | float | str) -> str:
    """A parameter as commands see it; truth is spelt as in TOML and JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)
