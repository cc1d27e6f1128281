"""Events of a run and its jobs: plan, calls of the program, what came of them, and a workload."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

from qloom.journal.event import STAMP, Event, Json, Kept, recorded


@recorded
class RunStarted(Event):
    """The plan of a run; always the first event."""

    version: int = 0
    qloom: str = ""
    program: str | None = None
    program_digest: str | None = None
    parameters: Json = field(default_factory=dict)
    strategy: str = ""
    options: Json | None = None
    world: str = ""
    site: Json = field(default_factory=dict)
    jobs: int = 1
    seed: int = 0
    profile: str | None = None
    engine: str | None = None
    advice: Json | None = None
    most_qpu_s: float | None = None
    on_recalibration: str | None = None
    created: str | None = None
    epoch_us: int | None = None
    host: str | None = None

    def in_real_time(self, began_us: int) -> RunStarted:
        """The same for a run that began at this time of day, here."""
        created = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(began_us / 1e6))
        return replace(self, created=created, epoch_us=began_us, host=platform.node())


@recorded
class Resumed(Event):
    """Another driver continues the run."""

    program_changed: bool = False
    engine_id: str | None = None
    on_recalibration: str | None = None
    most_qpu_s: float | None = None


@recorded
class RunEnded(Event):
    """The driver has ended: the run is over, or another driver continues it."""

    state: str = "failed"
    engine_id: str | None = None
    reason: str | None = None


@recorded
class QpuBudgetSpent(Event):
    """The run has held as many QPU-seconds as it may; its jobs end."""

    most_qpu_s: float


@recorded
class JobSubmitted(Event):
    """A job begins to wait."""


@recorded
class JobEnded(Event):
    """A job is done, failed or interrupted."""

    state: str
    result: Kept | None = None
    error: Json | None = None


# What the program calls


@recorded
class Called(Event):
    """The program called for classical or quantum work."""

    call: str
    order: int = 0
    kind: str = ""
    names: list[str] = field(default_factory=list)
    contents: list[str] | None = None
    shots: int | None = None
    circuits: int | None = None


@recorded
class Diverged(Event):
    """A resumed program differs from its journal, and may: calls that it did not repeat are forgotten."""

    order: int
    then: str
    now: str | None = None
    forgotten: list[str] = field(default_factory=list)


@recorded
class Returned(Event):
    """The results of a call were given to the program."""

    call: str


@recorded
class CallAbandoned(Event):
    """The program ended before a call that it had made."""

    call: str


@recorded
class ProgramComputed(Event):
    """The program itself computed until now: before it made a call, asked for the result of one, or ended."""

    seconds: float
    call: str | None = None
    awaited: bool = False
    declared: bool = False


@recorded
class Progressed(Event):
    """How far the program says it is: `done` of `of`; it does not say the whole if that is None."""

    done: float
    of: float | None = None
    note: str | None = None


@recorded
class CandidateChosen(Event):
    """Which implementation of a quantum candidate was chosen, and why."""

    event: ClassVar[str] = "candidate"

    work: str
    instead: str | None = None
    choice: str
    reason: str | None = None


@recorded
class Speculated(Event):
    """The program offered spare work."""

    works: list[str]
    names: list[str] = field(default_factory=list)


@recorded
class Claimed(Event):
    """The program asked for work that had begun as spare work."""

    work: str


# A workload


@recorded
class JobOver(Event):
    """What came of one job of a workload; the fields are those of `qloom load run --csv`."""

    record: Json = field(default_factory=dict)

    @classmethod
    def fields_from(cls, line: Mapping[str, Any]) -> Json:
        """The record's fields stand in the line itself."""
        return {"record": {name: value for name, value in line.items() if name not in (*STAMP, "event")}}

    def as_dict(self) -> Json:
        """The line of the journal, as JSON has it."""
        return {"n": self.n, "at_us": self.at_us, "event": self.event, **self.record}


@recorded
class Measured(Event):
    """The figures of a workload."""

    figures: dict[str, float]
