"""Writes the pages of docs/reference that are made from the code: python docs/make_reference.py

The command line makes cli.md, the model of the broker's config broker-config.md, docstrings and signatures api.md.
Tests compare the pages with what this makes, so that they cannot drift apart.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
import typing
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import qloom
from qloom.broker.config import BrokerConfig
from qloom.cli.main import app
from qloom.devices import factory
from qloom.job.sync import Handle, SyncJob
from qloom.runs.plan import Plan

PAGE = Path(__file__).parent / "reference" / "cli.md"
CONFIG_PAGE = PAGE.with_name("broker-config.md")
API_PAGE = PAGE.with_name("api.md")

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

CONFIG_INTRODUCTION = """\
# The broker's config

Made by `python docs/make_reference.py` from the model of the config; change the descriptions there, not this page.

`qloom broker serve --config broker.toml` reads a TOML file. Every key may be left out, and an unknown one is refused
with its name. Keys that end in `_s` are seconds. [The guide](../guides/broker.md#the-config) has an example;
`qloom broker check --config broker.toml` tries a file.
"""

API_INTRODUCTION = """\
# The Python API

Made by `python docs/make_reference.py` from signatures and docstrings; change those, not this page.

Everything is imported from `qloom`, except what is handed to a program: its job and the handles of its calls.
[What a quantum call takes and gives](../guides/quantum.md), [synchronous programs](../guides/synchronous.md) and
[Qiskit](../guides/qiskit.md) show how the parts are used.
"""
API = {
    "Runs": [qloom.run, qloom.run_async, Plan, qloom.resume, qloom.Outcome, qloom.program],
    "The job of an asynchronous program": [qloom.Job],
    "The job of a synchronous program": [SyncJob, Handle],
    "Tasks": [qloom.task, qloom.call, qloom.command, qloom.Task, qloom.CommandResult],
    "Payloads": [qloom.Payload, qloom.qubo, qloom.delay],
    "Answers": [qloom.Samples, qloom.Sample, qloom.Counts, qloom.AtomCounts],
    "Sites": [qloom.Site, qloom.Qpu, qloom.Overheads, qloom.Watts],
    "Errors": [qloom.QloomError, qloom.InputError, qloom.JobError],
}
INTERNAL = {"run", "before_result", "in_real_time", "check", "with_devices", "as_event", "as_dict", "broker"}


def reference() -> str:
    """The page of the command line."""
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


def config_reference() -> str:
    """The page of the broker's config."""
    return "\n".join([CONFIG_INTRODUCTION, *_table(BrokerConfig, "The top of the file"), *_device_keys()])


def _device_keys() -> list[str]:
    lines = ["## devices", "", "`[[devices]]`: one QPU each. [Devices](../guides/devices.md) says more.", ""]
    lines += ["| key | of kind | |", "|---|---|---|"]
    for key, meaning in factory.MEANINGS.items():
        kinds = [kind for kind, own in factory.OWN.items() if key in own]
        lines.append(f"| `{key}` | {', '.join(f'`{kind}`' for kind in kinds) or 'all'} | {_cell(meaning)} |")
    return [*lines, ""]


def _table(model: type[BaseModel], title: str) -> list[str]:
    """The keys of one table, then those of the tables within it."""
    lines = [f"## {title}", "", (model.__doc__ or "").strip(), ""]
    lines += ["| key | type | default | |", "|---|---|---|---|"]
    within: dict[type[BaseModel], str] = {}
    for key, field in model.model_fields.items():
        inner = _model(field.annotation)
        default = "" if inner is not None else _config_default(key, field)
        lines.append(f"| `{key}` | {_type(field)} | {default} | {_cell(field.description)} |")
        if inner is not None:
            within.setdefault(inner, key)
    lines.append("")
    for part, key in within.items():
        lines += _table(part, key)
    return lines


def _model(annotation: Any) -> type[BaseModel] | None:
    """The model of a table, or of each of several tables."""
    for kind in (annotation, *typing.get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _type(field: FieldInfo) -> str:
    """As in TOML, with the limits on a value."""
    limits = [limit for one in field.metadata if (limit := _limit(one))]
    return ", ".join([_type_name(field.annotation), *limits])


def _type_name(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        limits = [limit for info in arguments[1:] for one in info.metadata if (limit := _limit(one))]
        return ", ".join([_type_name(arguments[0]), *limits])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_name(one) for one in arguments if one is not types.NoneType)
    if origin is typing.Literal:
        return " or ".join(f"`{json.dumps(one)}`" for one in arguments)
    if origin is tuple:
        items = _type_name(arguments[0])
        return "tables" if items == "table" else f"list of {items if items.startswith('`') else f'{items}s'}"
    if origin is dict:
        return "tables by name" if _model(annotation) else "table"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "path"}
    return names.get(annotation, "table")


def _limit(limit: Any) -> str:
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    return " ".join(f"{sign} {getattr(limit, name)}" for name, sign in signs.items() if hasattr(limit, name))


def _config_default(key: str, field: FieldInfo) -> str:
    if field.default is None:
        return ""
    if key == "socket_mode":  # as one reads modes
        return f"`0o{field.default:o}`"
    if key == "devices":
        return "one annealer"
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    return f"`{json.dumps(value)}`"


def api_reference() -> str:
    """The page of the Python API."""
    lines = [API_INTRODUCTION]
    for title, parts in API.items():
        lines += [f"## {title}", ""]
        for part in parts:
            lines += _class(part) if isinstance(part, type) else _function(part, part.__name__, "###")
    return "\n".join(lines)


def _class(part: type[Any]) -> list[str]:
    lines = [f"### {part.__name__}", "", *_paragraphs(part)]
    if dataclasses.is_dataclass(part):
        lines += ["| field | type | default | |", "|---|---|---|---|"]
        said = _field_comments(part)
        for each in dataclasses.fields(part):
            shown = [f"`{each.name}`", f"`{each.type}`".replace("|", "\\|"), _field_default(each), said[each.name]]
            lines.append(f"| {' | '.join(shown)} |")
        lines.append("")
    for name, member in vars(part).items():
        if name.startswith("_") or name in INTERNAL:
            continue
        if inspect.isfunction(member):
            lines += _function(inspect.unwrap(member), name, "####")
        elif inspect.isdatadescriptor(member) and inspect.getdoc(member):
            lines += [f"#### {name}", "", *_paragraphs(member)]
        elif isinstance(getattr(member, "func", None), types.FunctionType):  # a cached property
            lines += [f"#### {name}", "", *_paragraphs(member.func)]
    return lines


def _function(function: Any, name: str, heading: str) -> list[str]:
    words = []
    starred = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        starred = starred or stars == "*"
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        words.append(f"{stars}{parameter.name}{default}")
    return [f"{heading} {name}({', '.join(words)})", "", *_paragraphs(function)]


def _paragraphs(part: Any) -> list[str]:
    """A docstring, its paragraphs unwrapped."""
    text = inspect.getdoc(part) or ""
    return [line for paragraph in text.split("\n\n") for line in (" ".join(paragraph.split()), "")]


def _field_comments(part: type[Any]) -> dict[str, str]:
    """What stands behind each field in the source, of its base classes too."""
    found = dict.fromkeys((each.name for each in dataclasses.fields(part)), "")
    for kind in reversed(part.__mro__[:-1]):
        for name, comment in re.findall(r"^    (\w+): [^#\n]*?  # (.*)$", inspect.getsource(kind), re.MULTILINE):
            if name in found:
                found[name] = _cell(comment)
    return found


def _field_default(each: dataclasses.Field[Any]) -> str:
    if each.default is dataclasses.MISSING:
        return "" if each.default_factory is dataclasses.MISSING else "made anew"
    default = getattr(each.default, "default", each.default)  # of a field with limits
    return f"`{default!r}`"


if __name__ == "__main__":
    PAGE.write_text(reference())
    API_PAGE.write_text(api_reference())
    CONFIG_PAGE.write_text(config_reference())
