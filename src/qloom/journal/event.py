"""What an event of a journal is: a frozen class for each kind, which writes and reads its JSON line.

An event is made without number and time: the journal stamps it when it is recorded. A field that is None or False is
left out of the line. The kinds are in `events.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar, dataclass_transform

Json = dict[str, Any]
Kept = dict[str, Any]  # a result: in the line itself, or the name of its file

STAMP = ("n", "at_us", "job")
EVENTS: dict[str, type[Event]] = {}  # by their names in a journal

E = TypeVar("E", bound="Event")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def _frozen_to_readers(cls: type[E]) -> type[E]:
    """A frozen dataclass to the type checker only: a job makes dozens, and frozen ones are slow to make."""
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)


@_frozen_to_readers
class Event:
    """One line of a journal. `job` is empty for events of the run as a whole."""

    event: ClassVar[str] = ""  # its name in the journal
    own_fields: ClassVar[tuple[str, ...]] = ()  # without those of the stamp

    n: int = -1
    at_us: int = 0  # when it was observed, in microseconds since the run began
    job: str = ""

    def stamp(self, n: int, at_us: int, job: str) -> None:
        """Set the place in a journal; only the journal may, and once."""
        self.n, self.at_us = n, at_us  # type: ignore[misc]  # frozen to everybody else
        if job:
            self.job = job  # type: ignore[misc]

    @property
    def when_us(self) -> int:
        """When it happened: by the engine's clock where there is one, otherwise when it was observed."""
        return self.at_us

    @classmethod
    def fields_from(cls, line: Mapping[str, Any]) -> Json:
        """The arguments to make it with, from its line."""
        return {name: line[name] for name in cls.own_fields if name in line}

    def as_dict(self) -> Json:
        """The line of the journal, as JSON has it."""
        line: Json = {"n": self.n, "at_us": self.at_us, "event": self.event}
        if self.job:
            line["job"] = self.job
        for name in self.own_fields:
            value = getattr(self, name)
            if value is not None and value is not False:
                line[name] = value
        return line


@_frozen_to_readers
class EngineEvent(Event):
    """An event that an engine has a time of its own for, such as Slurm's StartTime."""

    engine_us: int | None = None

    @property
    def when_us(self) -> int:
        """By the engine's clock, where that is known."""
        return self.at_us if self.engine_us is None else self.engine_us


Record = Callable[[Event], None]  # for those who write events without knowing the journal


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def recorded(cls: type[E]) -> type[E]:
    """Make a class a kind of event, known in journals by its name in snake case or by its own `event`."""
    made = _frozen_to_readers(cls)
    made.event = cls.event or re.sub(r"(?<!^)(?=[A-Z])", "_", made.__name__).lower()
    names = [one.name for one in fields(made) if one.name not in STAMP]
    made.own_fields = tuple(sorted(names, key=lambda name: name not in cls.__annotations__))  # inherited ones last
    EVENTS[made.event] = made
    return made


@_frozen_to_readers
class UnknownEvent(Event):
    """An event that this version does not know; its line is kept as it is."""

    line: Json

    def as_dict(self) -> Json:
        """The line as it was read."""
        return dict(self.line)


def event_from(line: Mapping[str, Any]) -> Event:
    """Read a line; raises `KeyError`, `TypeError` or `ValueError` for one that is no event."""
    n, at_us, job = line.get("n", -1), line["at_us"], line.get("job", "")
    if type(at_us) is not int or type(n) is not int or not isinstance(job, str) or not isinstance(line["event"], str):
        raise ValueError("not an event")
    kind = EVENTS.get(line["event"])
    if kind is None:
        return UnknownEvent(n=n, at_us=at_us, job=job, line=dict(line))
    return kind(n=n, at_us=at_us, job=job, **kind.fields_from(line))
