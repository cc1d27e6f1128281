"""Where a job runs. Each folder is one world; what they share lies beside them.

A world is found by name and entered through its `WorldEntry`. Nothing here knows what any of them does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from qloom.errors import InputError
from qloom.journal.event import Record
from qloom.plugins import Registry

if TYPE_CHECKING:  # workers and QPUs import what is beside this file: they start quickly
    from qloom.journal.replay import Past
    from qloom.site import Overheads, Site
    from qloom.world import Clock, World

DRIVERS = ("here", "in-job", "beside", "chain")

T = TypeVar("T")


@dataclass(frozen=True)
class RunContext:
    """What a world is given when it is made for a run."""

    site: Site
    directory: Path | None  # of the run; None: it is in memory only
    worker_set_up: dict[str, Any] = field(default_factory=dict)
    profile: Past | None = None
    record: Record | None = None  # for events of the world itself, such as the start of a worker
    driver: str = "here"  # where the driver lives: one of DRIVERS


class WorldFactory(Protocol):
    """A world whose time has begun to pass: its clock, and a way to make the world itself."""

    @property
    def clock(self) -> Clock:
        """The world's clock."""

    def make(self, context: RunContext) -> World:
        """Make the world for a run."""


class DriverJobs(Protocol):
    """The jobs of a world's engine that drivers live in."""

    def enclosing_job(self) -> str | None:
        """The engine's id of the job that this process was submitted as; None if it was not."""

    def require_ended(self, job: str, run: str) -> None:
        """Refuse to go on with a run that such a job has, or will have."""


class WorldEntry(ABC):
    """The way into one world: it checks a site, then runs a coroutine function in the world's time."""

    real_time: ClassVar[bool] = True  # whether time passes by itself
    driver_jobs: DriverJobs | None = None  # None: drivers always live here

    def check(self, site: Site) -> None:  # noqa: B027  most worlds take any site
        """Refuse a site that this world cannot be made for, before anything is written."""

    def measure(self, site: Site, *modules: str) -> Overheads:
        """Measure what the world costs, for virtual time; `modules` are what tasks import first."""
        raise InputError("this world cannot be measured", hint="--world local or --world slurm")

    @abstractmethod
    def run(self, main: Callable[[WorldFactory], Coroutine[Any, Any, T]], began_us: int, at_us: int) -> T:
        """Run `main` to its end. The run began at `began_us` of the epoch; a virtual clock starts at `at_us`."""


WORLDS: Registry[WorldEntry] = Registry(
    "qloom.worlds",
    "world",
    {
        "local": "qloom.worlds.local.world:ENTRY",
        "virtual": "qloom.worlds.virtual.entry:ENTRY",
        "slurm": "qloom.worlds.slurm.entry:ENTRY",
    },
    expected="an instance of qloom.worlds.WorldEntry",
    check=lambda found: isinstance(found, WorldEntry),
)


def world_entry(name: str) -> WorldEntry:
    """The way into the world of that name."""
    return WORLDS.choose(name)
