"""Options of strategies: a frozen dataclass for each, read from what the command line, files and journals say.

There an option is a number: 1 and 0 stand for true and false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar, get_type_hints

from qloom.errors import InputError, closest

O = TypeVar("O", bound="Options")  # noqa: E741


@dataclass(frozen=True)
class Options:
    """A strategy without options; those of others are subclasses with fields of type bool, int or float."""


def part(usual: float) -> Any:
    """An option from 0 to 1."""
    return field(default=usual, metadata={"most": 1.0})


def usual_options(kind: type[Options]) -> dict[str, float]:
    """The names of the options and what they are unless somebody says otherwise."""
    return asdict(kind())


def read_options(kind: type[O], given: Mapping[str, float]) -> O:
    """The options as given; refuses names and values that they do not have."""
    known = {each.name: each for each in fields(kind)}
    types = get_type_hints(kind)
    for name in given:
        if name not in known:
            hint = f"{closest(name, list(known))} it has: {', '.join(known) or 'none'}".lstrip()
            raise InputError(f"this strategy has no option {name!r}", hint=hint)
    return kind(
        **{
            name: _read(name, types[name], value, known[name].metadata.get("most", float("inf")))
            for name, value in given.items()
        }
    )


def _read(name: str, kind: type, value: float, most: float) -> float:
    if not isinstance(value, int | float):
        raise InputError(f"option {name} is a number, not {value!r}")
    if kind is bool:
        if value not in (0, 1):
            raise InputError(f"option {name} is true or false (1 or 0), not {value:g}")
        return bool(value)
    if not 0 <= value < float("inf"):
        raise InputError(f"option {name} must be a finite number of at least 0, not {value}")
    if value > most:
        raise InputError(f"option {name} must be from 0 to {most:g}, not {value:g}")
    if kind is int:
        if value != int(value):
            raise InputError(f"option {name} must be a whole number, not {value:g}")
        return int(value)
    return float(value)
