"""Reading what users type: `--set name=value`, strategies, sites."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qloom.errors import InputError, closest
from qloom.site import Site, parse_qpu, read_site, site_from
from qloom.strategies import STRATEGIES
from qloom.strategies import options_of as strategy_options


def parse_settings(texts: list[str]) -> dict[str, Any]:
    """`name=value` pairs; a value is a number, true/false, a list (`1,2,3`) or text."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"{text!r} is no setting", hint="--set name=value")
        settings[name] = parse_value(value)
    return settings


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
    """Those of the options that a strategy has: a comparison names them once for all."""
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
            raise InputError(f"{text!r} is no option for Slurm", hint="--slurm account=NAME")
        if key == "arguments":
            table[key] = [*table.get(key, []), *shlex.split(value)]
        else:
            table[key] = value
    return table


def make_site(
    file: Path | None, nodes: int | None, qpus: list[str], overheads: Path | None, slurm: Sequence[str] = ()
) -> Site:
    """The site file, with what was said on the command line on top."""
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
