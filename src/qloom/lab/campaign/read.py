"""Finding a campaign: a file, or the name of a built-in; every mistake in it is one line, before anything runs."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from qloom.errors import InputError
from qloom.lab.campaign.model import Campaign
from qloom.site import first_problem

USUAL_UNDER_LOAD = ["hybrid_turnaround_s", "rigid_wait_s"]  # figures, if a campaign of workloads names none


def built_in_names() -> list[str]:
    """The campaigns that come with qloom."""
    folder = resources.files("qloom.lab.campaign").joinpath("builtin")
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def read_raw(text: str) -> tuple[str, dict[str, Any]]:
    """The short name and the tables of a campaign, given by file or by name."""
    if text in built_in_names():
        source = resources.files("qloom.lab.campaign").joinpath("builtin", f"{text}.toml").read_text()
        return text, tomllib.loads(source)
    path = Path(text)
    if path.suffix != ".toml":
        raise InputError(
            f"no campaign is called {text!r}", hint=f"give a file.toml, or one of {', '.join(built_in_names())}"
        )
    try:
        return path.stem, tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read the campaign file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None


@functools.cache
def included(name: str) -> Campaign:
    """A campaign whose cells are part of another one."""
    return resolve(read_raw(name)[1], name)


def resolve(raw: Mapping[str, Any], name: str, values: Mapping[str, float] | None = None) -> Campaign:
    """The campaign with its calibrated values, or others, put in."""
    given = raw.get("calibrated", {})
    if not isinstance(given, dict) or not all(isinstance(entry, dict) for entry in given.values()):
        raise InputError(
            f"campaign {name}: calibrated values are tables", hint="[calibrated.NAME] with value and origin"
        )
    known = {key: entry.get("value") for key, entry in given.items()} | dict(values or {})
    calibrated = {key: {**entry, "value": known[key]} for key, entry in given.items()}
    tables = _put_in({**raw, "calibrated": calibrated}, known, name)
    try:
        campaign = Campaign.model_validate(tables)
    except ValidationError as error:
        raise InputError(f"campaign {name}: {first_problem(error)}") from None
    except InputError as error:  # an unknown strategy or technology
        raise InputError(f"campaign {name}: {error.message}", hint=error.hint) from None
    if campaign.is_under_load and "figures" not in campaign.model_fields_set:
        return campaign.model_copy(update={"figures": USUAL_UNDER_LOAD})
    return campaign


def _put_in(value: Any, known: Mapping[str, Any], name: str) -> Any:
    if isinstance(value, str) and value.startswith("$"):
        if value[1:] not in known:
            raise InputError(f"campaign {name}: {value} is not a calibrated value", hint="add it to [calibrated]")
        return known[value[1:]]
    if isinstance(value, dict):
        return {key: _put_in(item, known, name) for key, item in value.items()}
    return [_put_in(item, known, name) for item in value] if isinstance(value, list) else value
