"""Machines by name: what an emulated device looks like, from `profiles.toml`."""

from __future__ import annotations

import functools
import tomllib
from importlib.resources import files
from typing import Any

from qloom.device import Description
from qloom.devices.technologies import technology
from qloom.errors import InputError


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads((files("qloom.devices") / "profiles.toml").read_text())


def profile_names() -> list[str]:
    """All profiles."""
    return list(_table())


def load_profile(name: str) -> Description:
    """The machine of that name."""
    try:
        values = dict(_table()[name])
    except KeyError:
        raise InputError(f"no profile is called {name!r}", hint=f"choose one of {', '.join(_table())}") from None
    scale = technology(values["technology"])
    times = {"set_up_s": scale.set_up_s, "per_shot_s": scale.per_shot_s}
    values["payloads"] = tuple(values["payloads"])
    return Description(**{"name": name, **times, **values})
