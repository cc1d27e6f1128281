"""Machines by name: what an emulated device looks like, from `profiles.toml`."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import replace
from importlib.resources import files
from typing import Any

from qloom.device import Description
from qloom.devices.graphs import square_lattice
from qloom.devices.schema import description_from, target_from
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
    target = values.pop("target", None)
    found = description_from({"name": name, **times, **values})
    return found if target is None else replace(found, target=target_from(_with_couplings(target)))


def _with_couplings(table: dict[str, Any]) -> dict[str, Any]:
    """A profile's target with its couplings written out."""
    target = {name: value for name, value in table.items() if name not in ("lattice", "star")}
    if "lattice" in table:
        target["couplings"] = square_lattice(table["lattice"])
    elif "star" in table:
        target["couplings"] = [(table["star"], other) for other in range(table["qubits"]) if other != table["star"]]
    return target
