"""What a site is: nodes, QPUs, overheads and watts. Given on the command line or in a TOML file."""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from qloom.devices.disruptions import Window, window_from
from qloom.devices.profiles import load_profile, profile_names
from qloom.devices.technologies import TECHNOLOGIES, technology
from qloom.errors import InputError, NeedError, closest
from qloom.model import Task

STRICT = ConfigDict(extra="forbid")
UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")  # as pydantic calls it


def _window(values: Any) -> Window:
    """A window in which a QPU is recalibrated, in seconds of the run."""
    if isinstance(values, Window):
        return values
    if isinstance(values, Mapping) and "at" in values:
        hint = "{ first_s = 100, every_s = 3600, for_s = 60 }"
        raise InputError("a site's calibration windows are in seconds of the run: there is no 'at'", hint=hint)
    return window_from(values)


@checked(frozen=True, config=STRICT)
class Qpu:
    """One quantum device of the site."""

    name: str = "qpu"
    technology: str = "annealer"
    profile: str = ""  # a machine whose size, time scale, limits and target it takes; its technology follows
    qubits: int = 0  # the largest problem that fits; 0: any
    shares: int = 8  # vQPUs that it is divided into
    lanes: int = 1  # tasks that it runs at once
    offline: bool = False
    outages_s: tuple[tuple[float, float | None], ...] = ()  # from, until (seconds of the run; none: no return)
    calibration: tuple[Annotated[Window, BeforeValidator(_window)], ...] = ()  # when it starts nothing, by the run

    def __post_init__(self) -> None:
        technology(self.technology)
        if self.profile:
            object.__setattr__(self, "technology", load_profile(self.profile).technology)
        if self.shares < 1 or self.lanes < 1 or self.qubits < 0:
            raise InputError(f"QPU {self.name}: shares and lanes must be at least 1, qubits at least 0")
        last = 0.0
        for begin, until in self.outages_s:
            end = float("inf") if until is None else until
            if not last <= begin < end <= float("inf"):
                raise InputError(f"QPU {self.name}: outages_s are pairs [from, until] in order, not {[begin, until]}")
            last = end

    @property
    def away_s(self) -> tuple[tuple[float, float | None], ...]:
        """When the device cannot be used."""
        return ((0.0, None),) if self.offline else self.outages_s


@checked(frozen=True, config=STRICT)
class Overheads:
    """Seconds that the engine takes; all zero unless they were measured. Used by the virtual world."""

    submit_s: float = 0.0  # until a request for a new allocation stands in line (a workflow manager's gap)
    tick_s: float = 0.0  # a request that has to wait starts at the scheduler's next tick
    grant_s: float = 0.0  # from the engine's decision until the job can use its nodes
    worker_start_s: float = 0.0  # a worker on a node, before its first task
    grow_s: float = 0.0
    shrink_s: float = 0.0
    release_s: float = 0.0  # until a released node can be given to somebody else
    queue_call_s: float = 0.0  # a call to the queue of a QPU
    task_s: float = 0.0  # added to each task
    warm_workers: bool = False  # a worker outlives the allocation that it was started in

    def __post_init__(self) -> None:
        if not all(0 <= value < float("inf") for value in asdict(self).values()):
            raise InputError("overheads are seconds: finite, and not negative")


@checked(frozen=True, config=STRICT)
class Watts:
    """Power of a node and of a QPU, held but idle and busy; energy is only reported if these are given."""

    node_idle: float = 0.0
    node_busy: float = 0.0
    qpu_idle: float = 0.0
    qpu_busy: float = 0.0

    def __post_init__(self) -> None:
        if not all(0 <= value < float("inf") for value in asdict(self).values()):
            raise InputError("watts are finite, and not negative")


# Arguments by which a run finds and leads its jobs, in full and as one letter.
_OWN_ARGUMENTS = (
    *("--job-name", "--comment", "--clusters", "--array", "--dependency", "--nodes"),
    *("--no-shell", "--wrap", "--quiet", "--test-only"),
)
_OWN_LETTERS = "JMadNQ"


def _is_qloom_s_own(word: str) -> bool:
    """Whether an argument of the site would take a job out of its run's hands; Slurm takes names cut short, too."""
    if word.startswith("--"):
        return any(own.startswith(word.partition("=")[0]) for own in _OWN_ARGUMENTS)
    return word == ":" or (len(word) > 1 and word[0] == "-" and word[1] in _OWN_LETTERS)


@checked(frozen=True, config=STRICT)
class Slurm:
    """What every Slurm job of a run is asked for with; used by the world `slurm`. Empty: as Slurm has it."""

    partition: str = ""  # of the nodes; empty: the default partition
    quantum_partition: str = "quantum"
    gres: str = "qpu"  # a QPU with N shares is this gres N times; of several QPUs each has its name as type
    licences: str = ""  # the licence that stands for a QPU instead, if the site has no gres for it
    account: str = ""
    qos: str = ""
    reservation: str = ""
    constraint: str = ""
    network: str = ""
    time_limit: str = ""  # of each job, as Slurm writes it: 30 (minutes), 1:30:00, 2-0
    arguments: tuple[str, ...] = ()  # any other of salloc
    python: str = ""  # on the nodes; empty: the one that runs this
    poll_s: float = 30.0  # between two looks at the queue
    keep_warm_s: float = 0.0  # for which a process that has imported stays on a released node; 0: nothing stays
    handover_s: float = 60.0  # for which a driver in a job waits for more; then a job asks for all of it at once
    most_calls_per_s: float = 10.0  # of Slurm's programs, by one run, after ten seconds' worth at once
    most_node_hours: float | None = None  # a run is ended when its allocations have held so much
    most_qpu_s: float | None = None

    def __post_init__(self) -> None:
        for word in self.arguments:
            if _is_qloom_s_own(word):
                hint = "leave it out; for charging there are account and --wckey"
                raise InputError(f"slurm.arguments may not hold {word}: qloom sets it for each job itself", hint=hint)
        if not 0.1 <= self.poll_s < float("inf"):
            raise InputError(f"slurm.poll_s must be at least 0.1 seconds, not {self.poll_s}")
        if not 0.1 <= self.handover_s < float("inf"):
            raise InputError(f"slurm.handover_s must be at least 0.1 seconds, not {self.handover_s}")
        if not 0 <= self.keep_warm_s < 86400:
            raise InputError(f"slurm.keep_warm_s must be 0 to 86400 seconds, not {self.keep_warm_s}")
        for name in ("most_calls_per_s", "most_node_hours", "most_qpu_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"slurm.{name} must be a number above 0, not {value}")


@checked(frozen=True, config=STRICT)
class Site:
    """A cluster as a world sees it."""

    nodes: int = 3  # the most that one job may hold
    cluster_nodes: int = 0  # all that jobs share; 0: no more than one job may hold
    cpus_per_node: int = 0  # 0: as many as this machine has
    memory_per_node_mb: int = 0  # 0: as much as this machine has
    qpus: tuple[Qpu, ...] = field(default_factory=lambda: (Qpu(),))
    broker: str | None = None  # where a broker has the QPUs: http://HOST:PORT or a unix socket; none: in process
    overheads: Overheads = field(default_factory=Overheads)
    watts: Watts = field(default_factory=Watts)
    slurm: Slurm = field(default_factory=Slurm)

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise InputError(f"a site needs at least one node, not {self.nodes}", hint="--nodes 3")
        if self.cluster_nodes and self.nodes > self.cluster_nodes:
            raise InputError(f"a job may hold {self.nodes} nodes and the cluster has {self.cluster_nodes}")
        names = [qpu.name for qpu in self.qpus]
        if len(names) != len(dict.fromkeys(names)):
            raise InputError(f"two QPUs have the same name: {', '.join(names)}")

    @property
    def node_names(self) -> list[str]:
        """n1, n2, ... of the whole cluster."""
        return [f"n{number}" for number in range(1, (self.cluster_nodes or self.nodes) + 1)]

    def node_cpus(self) -> int:
        """Cores of one node."""
        return self.cpus_per_node or _machine()[0]

    def node_memory_mb(self) -> int:
        """Memory of one node."""
        return self.memory_per_node_mb or _machine()[1]

    def check_task(self, task: Task) -> None:
        """Raise `NeedError` for a task that asks for more than any node has, or all of them together."""
        if task.nodes > self.nodes:
            raise _too_much(task, task.nodes, self.nodes, "nodes")
        if task.cpus > 1 and task.cpus > self.node_cpus():
            raise _too_much(task, task.cpus, self.node_cpus(), "cpus on a node")
        if task.memory_mb > 0 and task.memory_mb > self.node_memory_mb():
            raise _too_much(task, task.memory_mb, self.node_memory_mb(), "MB of memory on a node")

    def with_devices(self, devices: Sequence[Mapping[str, Any]]) -> Site:
        """The same site with the QPUs that its broker has."""
        keys = ("name", "technology", "qubits", "shares", "lanes")
        return replace(self, qpus=tuple(Qpu(**{key: device[key] for key in keys}) for device in devices))

    def as_dict(self) -> dict[str, Any]:
        """The site as the journal keeps it."""
        values = asdict(self)
        for qpu in values["qpus"]:
            if not qpu["calibration"]:
                del qpu["calibration"]
        return values


def _too_much(task: Task, asked: int, there_is: int, what: str) -> NeedError:
    return NeedError(f"task {task.name} asks for {asked} {what} and there are {there_is}", hint="ask for less")


_TABLES: dict[str, Any] = {"qpus": Qpu, "overheads": Overheads, "watts": Watts, "slurm": Slurm}


@functools.cache
def _machine() -> tuple[int, int]:
    """Cores and megabytes of this machine."""
    return os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20


def site_from(values: dict[str, Any], origin: str = "the site") -> Site:
    """A checked site; errors name the first value that is wrong."""
    try:
        return TypeAdapter(Site).validate_python(values)
    except ValidationError as error:
        raise InputError(f"{origin}: {first_problem(error)}", hint=_closest_key(error)) from None


def _closest_key(error: ValidationError) -> str | None:
    """For an unknown key: the key of the same table that may be meant."""
    problem = error.errors()[0]
    if problem["type"] not in UNKNOWN_KEY:
        return None
    table, key = str(problem["loc"][0]), str(problem["loc"][-1])
    kind = _TABLES[table] if len(problem["loc"]) > 1 else Site
    return closest(key, [known.name for known in fields(kind)]) or None


def read_site(path: Path, what: str = "site file") -> dict[str, Any]:
    """The values of a site file, or of another file of that form."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read the {what} {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None


def parse_qpu(text: str) -> dict[str, Any]:
    """`NAME:TECHNOLOGY[:offline]`, as on the command line; the name of a machine's profile will do as well."""
    name, _, rest = text.partition(":")
    kind, _, state = rest.partition(":")
    if not name or not kind or state not in ("", "offline"):
        raise InputError(f"{text!r} is not a QPU", hint="--qpu NAME:TECHNOLOGY, or NAME:TECHNOLOGY:offline")
    machines = [machine for machine in profile_names() if machine not in TECHNOLOGIES]
    if kind not in TECHNOLOGIES and kind not in machines:
        hint = f"choose one of {', '.join(TECHNOLOGIES)}, or a machine: {', '.join(machines)}"
        raise InputError(f"no QPU technology is called {kind!r}", hint=hint)
    return {"name": name, "profile" if kind in machines else "technology": kind, "offline": state == "offline"}


def first_problem(error: ValidationError) -> str:
    """One line for the first thing that pydantic found."""
    problem = error.errors()[0]
    place = ".".join(str(step) for step in problem["loc"]) or "top level"
    what = problem["msg"].removeprefix("Value error, ")
    if problem["type"] in UNKNOWN_KEY:
        what = "is not a known key"
        return f"{place} {what}"
    return f"{place}: {what[0].lower()}{what[1:]}"
