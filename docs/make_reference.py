"""Writes docs/reference/cli.md from the command line itself: python docs/make_reference.py

A test compares the page with what this makes, so that the two cannot drift apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from qloom.cli.main import app

PAGE = Path(__file__).parent / "reference" / "cli.md"

INTRODUCTION = """\
# The command line

Made by `python docs/make_reference.py` from the program itself; change the help texts, not this page.

`PROGRAM` is `file.py[:function]` (the function is `program` unless another is named), a job file, or the name of a
built-in program. `RUN` is the id of a run, the start of one, a path to its directory, or `last`. `--set` takes
`name=value`, where a value is a number, `true` or `false`, a list (`1,2,3`) or text.

Results go to the standard output; progress, notes, tables of single runs and errors to the standard error.
Exit codes: [errors.md](errors.md). Runs are kept in `$QLOOM_HOME`, or else in `qloom` in the user's data directory
(`$XDG_DATA_HOME`, `~/.local/share`).
"""


def reference() -> str:
    """The page."""
    return "\n".join([INTRODUCTION, *_commands(typer.main.get_command(app), "qloom")])


def _commands(group: Any, name: str) -> list[str]:
    lines: list[str] = []
    context = typer.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        lines += (
            _commands(command, f"{name} {word}") if hasattr(command, "commands") else _command(command, name, word)
        )
    return lines


def _command(command: Any, parent: str, word: str) -> list[str]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join([parent, word, *(_argument(argument) for argument in arguments), "[OPTIONS]"])
    lines = [f"## {parent} {word}", "", " ".join(command.help.split()), "", f"`{usage}`", ""]
    rows = [(_argument(argument), argument.help, _default(argument)) for argument in arguments]
    rows += [(", ".join(f"`{name}`" for name in option.opts), option.help, _default(option)) for option in options]
    if rows:
        lines += ["| | | default |", "|---|---|---|"]
        lines += [f"| {name} | {_cell(text)} | {default} |" for name, text, default in rows]
        lines.append("")
    return lines


def _argument(argument: Any) -> str:
    name = argument.name.upper()
    return name if argument.required else f"[{name}]"


def _default(parameter: Any) -> str:
    default = parameter.default
    if default is None or default is False or default in ("", [], ()) or callable(default):
        return ""
    return f"`{default}`" if isinstance(default, str | int | float | Path) else ""


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(reference())
