"""Machines by name: what an emulated device looks like, from `profiles.toml`, and its coupling graph written out."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from qloom.device import Description, DeviceTarget
from qloom.devices.schema import description_from, target_from
from qloom.devices.technologies import technology
from qloom.errors import InputError

Pairs = list[tuple[int, int]]


def square_lattice(rows: Sequence[tuple[int, int]]) -> Pairs:
    """Neighbours in a square lattice of rows, each with its first column and its length; numbered row by row."""
    number: dict[tuple[int, int], int] = {}
    for row, (first, length) in enumerate(rows):
        for column in range(first, first + length):
            number[row, column] = len(number)
    pairs = []
    for (row, column), qubit in number.items():
        for neighbour in ((row, column + 1), (row + 1, column)):
            if neighbour in number:
                pairs.append((qubit, number[neighbour]))
    return pairs


def chimera(rows: int, columns: int, shore: int) -> Pairs:
    """Cells of two shores that are coupled with each other; one shore goes on in the column, the other in the row."""
    pairs = []
    for row in range(rows):
        for column in range(columns):
            first = 2 * shore * (row * columns + column)
            pairs += [(first + u, first + shore + v) for u in range(shore) for v in range(shore)]
            if row + 1 < rows:
                pairs += [(first + u, first + u + 2 * shore * columns) for u in range(shore)]
            if column + 1 < columns:
                pairs += [(first + shore + v, first + shore + v + 2 * shore) for v in range(shore)]
    return pairs


def couplings_of(target: DeviceTarget) -> Pairs:
    """All couplings of a target, those of a named graph included; none: all qubits are coupled, or none is said."""
    if not target.graph:
        return list(target.couplings)
    family, *numbers = target.graph.split()
    if family != "chimera" or len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        raise InputError(f"unknown graph {target.graph!r}", hint="chimera ROWS COLUMNS SHORE")
    return chimera(int(numbers[0]), int(numbers[1]), int(numbers[2]))


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
