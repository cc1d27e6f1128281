"""Where a job runs. Each folder is one world; what they share (what an allocation means) lies beside them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from qloom.errors import InputError
from qloom.journal.event import Record

if TYPE_CHECKING:  # workers and QPUs import what is beside this file: they start quickly
    from qloom.journal.replay import Past
    from qloom.ports import World
    from qloom.site import Site

WORLDS = ("local", "virtual", "slurm")
DRIVERS = ("here", "in-job", "beside", "chain")


@dataclass(frozen=True)
class Surroundings:
    """What a world is told when it is made."""

    site: Site
    directory: Path | None  # of the run
    worker_set_up: dict[str, Any] = field(default_factory=dict)
    profile: Past | None = None
    record: Record | None = None  # for events of the world itself, such as the start of a worker
    driver: str = "here"  # where the driver lives: one of DRIVERS


class Submitted(Protocol):
    """The jobs of a world's engine that drivers live in."""

    def own_job(self) -> str | None:
        """What the engine calls the job that this process was submitted as; None if it was not."""

    def require_ended(self, job: str, run: str) -> None:
        """Refuse to go on with a run that such a job has, or will have."""


class WorldEntry(Protocol):
    """The module `entry` of a world's folder."""

    REAL_TIME: bool
    submitted: Submitted | None  # None: its drivers are always here

    def check(self, site: Site) -> None:
        """Refuse a site that this world cannot be made for, before anything is written."""

    def execute(self, main: Callable[[Any], Coroutine[Any, Any, Any]], began_us: int, at_us: int) -> Any:
        """Run a coroutine function that is given the world's clock."""

    def make(self, surroundings: Surroundings, clock: Any) -> World:
        """The world itself; called inside `execute`."""


def world_entry(name: str) -> WorldEntry:
    """The way into the world of that name."""
    if name not in WORLDS:
        raise InputError(f"no world is called {name!r}", hint=f"choose one of {', '.join(WORLDS)}")
    entry: Any = importlib.import_module(f"qloom.worlds.{name}.entry")
    return entry  # type: ignore[no-any-return]
