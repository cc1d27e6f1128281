"""A state that cannot be changed while a policy decides, at next to no cost, and that tells who tries where.

Its objects are given classes, and its collections are exchanged for such, that look at one flag before each change.
Reading them costs what it did; only the engine's own changes become a little slower, and only under such a policy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from qloom.lab.schedulers.state import Entry, PolicyLine, Resource, State


class StateChanged(Exception):
    """Raised where a policy tries to change the state that it was shown."""


class _Flag:
    deciding = False


_flag = _Flag()


class Frozen:
    """Use as a context: inside, whatever changes the state raises `StateChanged`."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lines = 0  # that are frozen already
        self._before = False
        for resource in state.resources.values():
            resource.__class__ = FrozenResource
            resource.ends = _labelled(FrozenList(resource.ends), f"ends of {resource.name}")
        for name in ("running", "resources", "lines"):
            setattr(state, name, _labelled(FrozenDict(getattr(state, name)), f"state.{name}"))
        state.arrived = _labelled(FrozenList(state.arrived), "state.arrived")
        state.__class__ = FrozenState

    def __enter__(self) -> None:
        state = self._state
        if len(state.lines) != self._lines:
            self._freeze_lines()
        for entry in state.arrived:
            if entry.__class__ is Entry:
                entry.__class__ = FrozenEntry
        self._before, _flag.deciding = _flag.deciding, True  # one such policy may ask another

    def __exit__(self, *_error: object) -> None:
        _flag.deciding = self._before

    def _freeze_lines(self) -> None:
        """Before its first pass a line has a queue and nothing else; what it makes later is as its queue is."""
        for names, line in self._state.lines.items():
            if line.__class__ is PolicyLine:
                line.queue = _labelled(FrozenDeque(line.queue), f"queue of {' and '.join(names)}")
                line.amounts, line.groups = FrozenList(line.amounts), FrozenList(line.groups)
                line.__class__ = FrozenLine
        self._lines = len(self._state.lines)


def _assign(self: Any, name: str, value: Any) -> None:
    if _flag.deciding:
        if isinstance(self, State):
            raise StateChanged(f"state.{name}")
        of = f"job {self.id}" if isinstance(self, Entry) else getattr(self, "name", "a line")
        raise StateChanged(f"{name} of {of}")
    object.__setattr__(self, name, value)


class FrozenState(State):
    """A state whose attributes a policy cannot change."""

    __setattr__ = _assign


class FrozenEntry(Entry):
    """An entry that a policy cannot change."""

    __slots__ = ()
    __setattr__ = _assign


class FrozenResource(Resource):
    """A resource that a policy cannot change."""

    __slots__ = ()
    __setattr__ = _assign


class FrozenLine(PolicyLine):
    """A line that a policy cannot change."""

    __slots__ = ()
    __setattr__ = _assign


def _freezing(kind: type, *changes: str) -> Any:
    """A kind of collection whose methods for change look at the flag first."""

    def looking_first(change: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Any, *given: Any, **named: Any) -> Any:
            if _flag.deciding:
                raise StateChanged(self.label)
            return change(self, *given, **named)

        return method

    methods = {name: looking_first(getattr(kind, name)) for name in changes}
    return type(f"Frozen{kind.__name__.capitalize()}", (kind,), {"label": "what waits in a line", **methods})


def _labelled(collection: Any, label: str) -> Any:
    """What the error calls a collection."""
    collection.label = label
    return collection


IN_PLACE = ("__setitem__", "__delitem__", "clear", "pop")
ORDERED = (*IN_PLACE, "append", "extend", "insert", "remove", "reverse", "__iadd__", "__imul__")
FrozenList: Any = _freezing(list, *ORDERED, "sort")
FrozenDeque: Any = _freezing(deque, *ORDERED, "appendleft", "extendleft", "popleft", "rotate")
FrozenDict: Any = _freezing(dict, *IN_PLACE, "popitem", "setdefault", "update", "__ior__")
