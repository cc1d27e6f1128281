"""Arguments that several commands share, and how what users type is read: `--set name=value`, strategies, sites."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from qloom.devices.technologies import TECHNOLOGIES
from qloom.errors import InputError, closest
from qloom.programs.load import Program
from qloom.site import Site, parse_qpu, read_site, site_from
from qloom.strategies import STRATEGIES
from qloom.strategies import options_of as strategy_options

TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}

ProgramArgument = Annotated[
    str, typer.Argument(help="file.py[:function], a job file (.toml), or a built-in: phases, clustering")
]
Strategy = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(STRATEGIES.built_in)}, or auto; also with another hold of the QPU: malleable+share."
    ),
]
World = Annotated[str, typer.Option(help="Where it runs: local, virtual or slurm.")]
Nodes = Annotated[int | None, typer.Option(help="Nodes of the cluster. [default: 3]")]
Jobs = Annotated[int, typer.Option(help="How many copies of the program run at once.")]
Set = Annotated[list[str], typer.Option("--set", help="A parameter of the program: name=value. Repeatable.")]
Option = Annotated[list[str], typer.Option("--option", help="An option of the strategy: name=number. Repeatable.")]
Qpu = Annotated[
    list[str],
    typer.Option("--qpu", help=f"A QPU, NAME:TECHNOLOGY[:offline], of {', '.join(TECHNOLOGIES)}. Repeatable."),
]
Broker = Annotated[
    str | None,
    typer.Option(
        help="A broker that has the QPUs: http://HOST:PORT or its unix socket. "
        "[default: on Slurm $QLOOM_BROKER; else in process]"
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
SiteFile = Annotated[Path | None, typer.Option("--site", help="A site file (TOML): nodes, QPUs, watts.")]
Slurm = Annotated[
    list[str],
    typer.Option("--slurm", help="For every Slurm job: a key of the site's table [slurm], key=value. Repeatable."),
]
OverheadsFile = Annotated[Path | None, typer.Option("--overheads", help="Overheads for virtual time (TOML).")]
Profile = Annotated[str | None, typer.Option(help="An earlier run whose durations and results virtual time takes.")]
Engine = Annotated[
    str | None, typer.Option(help="Who runs the workflow strategy's steps: streamflow. [default: qloom itself]")
]
MostQpuS = Annotated[
    float | None, typer.Option("--most-qpu-s", help="A budget: end the run when it has held this many QPU-seconds.")
]
OnRecalibration = Annotated[
    str,
    typer.Option(help="If a QPU is recalibrated between two answers of the run: warn, stop, or continue silently."),
]
OnRecalibrationSince = Annotated[
    str | None,
    typer.Option(
        "--on-recalibration",
        help="If a QPU was or is recalibrated meanwhile: warn, stop, or continue silently. [default: as it began]",
    ),
]
Notify = Annotated[
    str | None,
    typer.Option(
        envvar="QLOOM_NOTIFY",
        help="When the run has ended, start this command (the run's JSON is its input) or post to this URL.",
    ),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="A file, for --overheads.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]


def parse_settings(texts: list[str], program: Program | None = None) -> dict[str, Any]:
    """`name=value` pairs; a value is a number, true/false, a list (`1,2,3`) or text, or what a program asks for."""
    types = {} if program is None else program.parameter_types
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"{text!r} is not a setting", hint="--set name=value")
        settings[name] = _read_as(types[name], name, value) if name in types else parse_value(value)
    return settings


def _read_as(kind: type, name: str, text: str) -> Any:
    """A value of the type that a program's annotation or default asks for."""
    if kind is str:
        return text
    if kind is bool:
        if text.lower() not in TRUTH:
            raise InputError(f"{name} is true or false, not {text!r}", hint=f"--set {name}=true")
        return TRUTH[text.lower()]
    try:
        return kind(text)
    except ValueError:
        words = "a whole number" if kind is int else "a number"
        raise InputError(f"{name} is {words}, not {text!r}", hint=f"--set {name}=3") from None


def parse_value(text: str) -> Any:
    """A TOML value, a comma-separated list of them, or else the text itself."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
        json.dumps(value)  # a date is text: the journal has no dates
        return value
    except (tomllib.TOMLDecodeError, TypeError):
        pass
    return [parse_value(part.strip()) for part in text.split(",")] if "," in text else text


def parse_options(texts: list[str]) -> dict[str, float]:
    """`--option name=number` pairs for a strategy."""
    options = parse_settings(texts)
    for name, value in options.items():
        if not isinstance(value, int | float):  # true and false are numbers here
            raise InputError(f"--option {name} must be a number, not {value!r}")
    return options


def options_for(strategy: str, options: dict[str, float]) -> dict[str, float]:
    """The options that a strategy has: a comparison is given one list for all strategies."""
    own = strategy_options(strategy)
    return {name: value for name, value in options.items() if name in own}


def require_known(options: dict[str, float], strategies: list[str]) -> None:
    """Refuse an option that none of the strategies has."""
    known = list(dict.fromkeys(name for strategy in strategies for name in strategy_options(strategy)))
    for name in options:
        if name not in known:
            hint = f"{closest(name, known)} they have: {', '.join(known) or 'none'}".lstrip()
            raise InputError(f"none of these strategies has an option {name!r}", hint=hint)


def parse_strategies(text: str) -> list[str]:
    """`all`, or names separated by commas."""
    names = list(STRATEGIES) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError("no strategy was named", hint=f"--strategies all, or some of {','.join(STRATEGIES)}")
    return names


def parse_slurm(texts: Sequence[str]) -> dict[str, Any]:
    """`--slurm key=value` pairs: the keys of a site's table [slurm]; several `arguments` add up."""
    table: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"{text!r} is not an option for Slurm", hint="--slurm account=NAME")
        if key == "arguments":
            table[key] = [*table.get(key, []), *shlex.split(value)]
        else:
            table[key] = value
    return table


def make_site(
    file: Path | None, nodes: int | None, qpus: list[str], overheads: Path | None, slurm: Sequence[str] = ()
) -> Site:
    """The site file, overridden by what is given on the command line."""
    values = read_site(file) if file is not None else {}
    if nodes is not None:
        values["nodes"] = nodes
    if qpus:
        values["qpus"] = [parse_qpu(text) for text in qpus]
    if overheads is not None:
        values["overheads"] = read_site(overheads, "overheads file")
    if slurm:
        values["slurm"] = {**values.get("slurm", {}), **parse_slurm(slurm)}
    return site_from(values, str(file) if file else "the site")


def behind(broker: str | None, place: Site) -> Site:
    """A site whose QPUs a broker has, if one is named on the command line or in the site file."""
    address = broker or place.broker
    if address is not None and place.qpus != Site().qpus:
        raise InputError("with a broker, the QPUs are those of the broker", hint="leave out --qpu and [[qpus]]")
    return replace(place, broker=address)
