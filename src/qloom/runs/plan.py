"""What is to be run: a program, a strategy, a world, K jobs at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from qloom.errors import InputError, JournalError
from qloom.journal import home
from qloom.journal.event import Event
from qloom.journal.events import Resumed, RunStarted
from qloom.journal.file import VERSION, start_of
from qloom.journal.queries import require_jobs
from qloom.plugins import Registry
from qloom.programs.load import BUILT_IN, Program, load_program
from qloom.runs.recalibration import USUAL_ACTION, require_action
from qloom.site import Site, site_from
from qloom.strategies import choose
from qloom.version import __version__
from qloom.worlds import world_entry

if TYPE_CHECKING:
    from qloom.runs.outcome import Outcome
    from qloom.runs.runner import Listener

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What is to be run: the arguments of `run`."""

    program: Program
    parameters: dict[str, Any] = field(default_factory=dict)  # of the program
    strategy: str = "offload"
    options: dict[str, float] = field(default_factory=dict)  # of the strategy
    world: str = "local"  # or virtual, slurm
    site: Site = field(default_factory=Site)
    jobs: int = 1  # at once, each a run of the program
    seed: int = 0  # each job derives its own from it
    profile: str | None = None  # a run whose durations and results virtual time takes
    engine: str | None = None  # what runs the steps of the workflow strategy instead of qloom itself: streamflow
    most_qpu_s: float | None = None  # the budget of the run: it ends when it has held so many QPU-seconds
    on_recalibration: str = USUAL_ACTION  # if a device is recalibrated between two answers of the run
    advice: dict[str, Any] | None = None  # why this strategy was chosen, if qloom chose it

    def __post_init__(self) -> None:
        if self.profile is not None:  # "last" must mean the same run for the next plan, and when it is resumed
            object.__setattr__(self, "profile", str(home.find_run(self.profile).resolve()))

    def check(self) -> None:
        """Refuse what cannot run, before anything is written."""
        world_entry(self.world).check(self.site)
        for strategy in self.strategy.split(","):
            choose(strategy, self.options, self.site.nodes)
        if self.engine is not None:
            ENGINES.choose(self.engine, also=", or none")
        if self.jobs < 1:
            raise InputError(f"--jobs must be at least 1, not {self.jobs}")
        if self.most_qpu_s is not None and not 0 < self.most_qpu_s < float("inf"):
            raise InputError(f"a budget is a number of QPU-seconds, not {self.most_qpu_s}", hint="--most-qpu-s 60")
        require_action(self.on_recalibration)
        if self.engine is not None and self.on_recalibration == "stop":
            raise InputError(
                f"a run of {self.engine} cannot be stopped at a recalibration", hint="leave out --engine"
            )
        if self.profile is not None and self.world != "virtual":
            raise InputError("a profile is only of use in virtual time", hint="--world virtual")
        if self.site.broker is not None and not world_entry(self.world).real_time:
            raise InputError(
                f"the {self.world} world has its own QPUs: a broker runs in real time", hint="leave out --broker"
            )
        self.program.check(self.parameters)

    def with_devices(self) -> Plan:
        """The same plan with the QPUs that there are, if a broker has them; raises if it does not answer."""
        if self.broker is None:
            return self
        from qloom.broker.client.client import devices_at

        return replace(self, site=replace(self.site, broker=self.broker).with_devices(devices_at(self.broker)))

    @property
    def broker(self) -> str | None:
        """Where a broker has the QPUs: as the site says, or on Slurm $QLOOM_BROKER, which a TaskProlog sets there.

        The latter only if the site names no QPUs.
        """
        on_slurm = self.world == "slurm" or (self.world == "local" and "SLURM_JOB_ID" in os.environ)
        around = os.environ.get("QLOOM_BROKER") if on_slurm and self.site.qpus == Site().qpus else None
        return self.site.broker or around

    def as_event(self) -> RunStarted:
        """The plan as the journal keeps it."""
        return RunStarted(
            version=VERSION,
            qloom=__version__,
            program=self.program.source,
            program_digest=self.program.digest or None,
            parameters=self.parameters,
            strategy=self.strategy,
            options=self.options or None,
            world=self.world,
            site=self.site.as_dict(),
            jobs=self.jobs,
            seed=self.seed,
            profile=self.profile,
            engine=self.engine,
            advice=self.advice,
            most_qpu_s=self.most_qpu_s,
            on_recalibration=self.on_recalibration if self.on_recalibration != USUAL_ACTION else None,
        )


class WorkflowEngine(Protocol):
    """Runs a plan of the strategy `workflow` instead of qloom itself, and journals it as qloom would."""

    def __call__(self, plan: Plan, *, listener: Listener | None = None) -> Outcome:
        """Carry out a plan in a new run."""


ENGINES: Registry[WorkflowEngine] = Registry(
    "qloom.engines",
    "engine",
    {"streamflow": "qloom.streamflow.engine:execute"},
    expected="a function of a plan",
    check=callable,
)


def plan_of(events: Sequence[Event], name: str, program: Program | None = None) -> Plan:
    """The plan that the journal of a run begins with; `program` is its program again, if that has no file."""
    start = start_of(events)
    require_jobs(events, name)
    if not start.program:
        raise JournalError(f"{name} does not name its program")
    if program is None:
        require_source(start.program, name)
    drivers = [event for event in events if isinstance(event, RunStarted | Resumed)]
    return Plan(
        program or load_program(start.program),
        parameters=start.parameters,
        strategy=start.strategy,
        options=start.options or {},
        world=start.world,
        site=site_from(start.site, name),
        jobs=start.jobs,
        seed=start.seed,
        profile=start.profile,
        most_qpu_s=_last_said([event.most_qpu_s for event in drivers]),
        on_recalibration=_last_said([event.on_recalibration for event in drivers]) or USUAL_ACTION,
    )


def require_source(source: str, run: str) -> None:
    """Refuse a run whose program cannot be loaded again."""
    path = Path(source.rpartition(":")[0] or source)
    if source in BUILT_IN or path.exists():
        return
    if path.suffix in (".py", ".toml") and "ipykernel" not in source and "<" not in source:
        raise JournalError(f"the program of {run} is gone: {path}", hint="put it back where it was")
    function = source.rpartition(":")[2]
    raise JournalError(
        f"the program of {run}, {function}, was defined in a notebook, which has no file to load it from",
        hint=f"pass it again: qloom.resume({run!r}, program={function})",
    )


def _last_said(values: Sequence[T | None]) -> T | None:
    """What the user said last, when the run began or was resumed, so that a chain of drivers keeps to it."""
    return next((value for value in reversed(values) if value is not None), None)
