"""Strategies, worlds, devices, policies and engines by name: qloom's own, and those of other packages.

A package announces its own by entry points in the groups `qloom.strategies`, `qloom.worlds`, `qloom.devices`,
`qloom.payloads`, `qloom.policies`, `qloom.doors` and `qloom.engines`. Nothing is imported before it is asked for by
name, and installed packages are searched only for names that qloom does not have itself, so that commands start
quickly and a broken plug-in breaks only what asks for it.

A registry knows nothing of what it holds: the rooms that use one say what it is to hold.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar

from qloom.errors import InputError, closest

T = TypeVar("T")
OWN = "qloom"


@dataclass(frozen=True)
class PlugIn:
    """Something found by name: `target` is `module` or `module:attribute`, `origin` the package that it is from."""

    name: str
    target: str
    origin: str

    def load(self) -> Any:
        """Import it; whatever goes wrong in somebody else's module is an `InputError`."""
        module, _, attributes = self.target.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for attribute in filter(None, attributes.split(".")):
                found = getattr(found, attribute)
        except Exception as error:
            if self.origin == OWN:
                raise
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise InputError(f"plug-in {self.name!r} of {self.origin} cannot be imported: {reason}") from None
        return found


class Registry(MutableMapping[str, T]):
    """What there is of one kind, by name: qloom's own first, then what other packages have in the group."""

    def __init__(
        self, group: str, kind: str, own: Mapping[str, str], *, expected: str, check: Callable[[Any], bool]
    ) -> None:
        self.group = group  # of entry points
        self.kind = kind  # one of them, as errors call it
        self._own = {name: PlugIn(name, target, OWN) for name, target in own.items()}
        self._added: dict[str, T] = {}
        self._loaded: dict[str, T] = {}
        self._expected = expected
        self._check = check

    @property
    def built_in(self) -> list[str]:
        """The names of qloom's own: they need no search."""
        return list(self._own)

    def __getitem__(self, name: str) -> T:
        if name in self._added:
            return self._added[name]
        if name not in self._loaded:
            entry = self._own.get(name) or self._found().get(name)
            if entry is None:
                raise KeyError(name)
            loaded = entry.load()
            if not self._check(loaded):
                raise InputError(f"{self.kind} {name!r} of {entry.origin}: {entry.target} is not {self._expected}")
            self._loaded[name] = loaded
        return self._loaded[name]

    def __setitem__(self, name: str, value: T) -> None:
        """Add one in this process only."""
        self._added[name] = value

    def __delitem__(self, name: str) -> None:
        del self._added[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._added or name in self._found()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._own, *self._added, *self._found()]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def choose(self, name: str, *, also: str = "") -> T:
        """The one of that name; an error that names those there are, and what else can be said, if there is none."""
        if name not in self:
            hint = f"{closest(name, self)} choose one of {', '.join(self)}{also}".lstrip()
            raise InputError(f"unknown {self.kind} {name!r}", hint=hint)
        return self[name]

    def plug_ins(self) -> list[tuple[PlugIn, str]]:
        """All that there are, each with what is wrong with it, if anything; imports those of other packages."""
        listed = [(entry, "") for entry in self._own.values()]
        for entry in announced(self.group):
            problem = ""
            if entry != self._found().get(entry.name):
                problem = "another one has this name"
            else:
                try:
                    self[entry.name]
                except InputError as error:
                    problem = str(error)
            listed.append((entry, problem))
        return listed

    def _found(self) -> dict[str, PlugIn]:
        found: dict[str, PlugIn] = {}
        for entry in announced(self.group):
            if entry.name not in self._own:
                found.setdefault(entry.name, entry)
        return found


@functools.cache
def announced(group: str) -> tuple[PlugIn, ...]:
    """What installed packages have in a group of entry points."""
    from importlib.metadata import entry_points

    return tuple(
        PlugIn(each.name, each.value, f"{each.dist.name} {each.dist.version}" if each.dist else "?")
        for each in entry_points(group=group)
    )
