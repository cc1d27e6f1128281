"""What a job is made of: tasks, payloads, and what they need.

Users make tasks with `@task`, `call` or `command`, and payloads from a QUBO. Everything here is a plain
value: it can be hashed by content, sent to a worker and written to the journal.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar, dataclass_transform, overload

from qloom.answers import Sample as Sample  # results that earlier versions kept name it so
from qloom.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


class QpuHold(enum.Enum):
    """How a job holds a QPU."""

    WHOLE = "whole"  # an exclusive session: nobody else's tasks run
    SHARE = "share"  # one of N sessions that take turns: a vQPU
    TASK = "task"  # no session: each task waits in the device's queue


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def plain_value(cls: type[R]) -> type[R]:
    """A frozen dataclass to the type checker only: at run time a frozen one takes three times as long to make."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


@plain_value
class Need:
    """What an allocation is asked to hold."""

    nodes: int = 0
    qpu: QpuHold = QpuHold.TASK


@plain_value
class Task:
    """One piece of classical work: a Python function with its arguments, or a command."""

    name: str
    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    capture: tuple[str, ...] = ()  # files whose content a command's result carries
    nodes: int = 1
    cpus: int = 1
    memory_mb: int = 0
    ranks: int = 0  # MPI processes over the nodes; 0: the task does not use MPI
    expected_s: float | None = None
    stand_in: Callable[..., Any] | None = None  # computes the result in virtual time, if not `function`
    retries: int = 0  # how often it is run again where it failed
    time_limit_s: float | None = None  # it is killed when it has run for so long

    def needs(
        self,
        *,
        nodes: int | None = None,
        cpus: int | None = None,
        memory_mb: int | None = None,
        ranks: int | None = None,
        expected_s: float | None = None,
        retries: int | None = None,
        time_limit_s: float | None = None,
    ) -> Task:
        """The same task with other needs. They are no part of its content: a result is found again without them."""
        changed = Task(
            self.name,
            self.function,
            self.args,
            self.kwargs,
            self.command,
            self.cwd,
            self.env,
            self.capture,
            self.nodes if nodes is None else nodes,
            self.cpus if cpus is None else cpus,
            self.memory_mb if memory_mb is None else memory_mb,
            self.ranks if ranks is None else ranks,
            self.expected_s if expected_s is None else expected_s,
            self.stand_in,
            self.retries if retries is None else retries,
            self.time_limit_s if time_limit_s is None else time_limit_s,
        )
        _check_needs(changed)
        return changed


def _check_needs(task: Task) -> None:
    if task.nodes < 1 or task.cpus < 1 or task.memory_mb < 0:
        raise InputError(
            f"task {task.name}: nodes and cpus must be at least 1, memory_mb at least 0", hint="see Task.needs"
        )
    if task.ranks != 0 and task.ranks < task.nodes:
        raise InputError(f"task {task.name}: {task.ranks} MPI ranks are too few for {task.nodes} nodes")
    if task.expected_s is not None and not 0 <= task.expected_s < float("inf"):
        raise InputError(f"task {task.name}: expected_s must be a finite number of seconds, not {task.expected_s}")
    if task.retries < 0:
        raise InputError(f"task {task.name}: retries must be at least 0, not {task.retries}")
    if task.time_limit_s is not None and not 0 < task.time_limit_s < float("inf"):
        raise InputError(f"task {task.name}: time_limit_s must be seconds, not {task.time_limit_s}")


class TaskFunction(Generic[P, R]):
    """A function that makes a `Task` when it is called; `.function` is the function itself."""

    def __init__(self, function: Callable[P, R], expected_s: Any, needs: dict[str, Any], stand_in: Any) -> None:
        self.function = function
        self.expected_s = expected_s
        self._needs = needs
        self._stand_in = stand_in
        self.__module__ = function.__module__
        self.__qualname__ = function.__qualname__
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Task:
        """Describe one call, to be run by `job.classical` or `job.speculate`."""
        expected_s = self.expected_s(*args, **kwargs) if callable(self.expected_s) else self.expected_s
        described = Task(
            self.__name__, self, args, kwargs, expected_s=expected_s, stand_in=self._stand_in, **self._needs
        )
        _check_needs(described)
        return described

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self.__module__ == "__main__" or "<" in self.__qualname__:  # a worker could not find it by name
            return (TaskFunction, (self.function, self.expected_s, self._needs, self._stand_in))
        return self.__qualname__  # pickled by name, as a plain function is


@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R]: ...
@overload
def task(
    *,
    expected_s: float | Callable[..., float] | None = None,
    nodes: int = 1,
    cpus: int = 1,
    memory_mb: int = 0,
    ranks: int = 0,
    retries: int = 0,
    time_limit_s: float | None = None,
    stand_in: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, R]], TaskFunction[P, R]]: ...
def task(
    function: Callable[P, R] | None = None,
    /,
    *,
    expected_s: float | Callable[..., float] | None = None,
    nodes: int = 1,
    cpus: int = 1,
    memory_mb: int = 0,
    ranks: int = 0,
    retries: int = 0,
    time_limit_s: float | None = None,
    stand_in: Callable[..., Any] | None = None,
) -> TaskFunction[P, R] | Callable[[Callable[P, R]], TaskFunction[P, R]]:
    """Make calls of a function into tasks: `await job.classical(kmeans(data, 3))`.

    `expected_s` is a number of seconds or a function of the same arguments. `stand_in` computes the result
    in virtual time, for functions whose point is that they take time. With `ranks` the function is called
    by that many MPI processes, and the result is that of rank 0. A task that fails is run again `retries` times; one
    that runs for longer than `time_limit_s` is killed, and has failed.
    """
    needs = {
        **{"nodes": nodes, "cpus": cpus, "memory_mb": memory_mb, "ranks": ranks},
        **{"retries": retries, "time_limit_s": time_limit_s},
    }

    def decorate(function: Callable[P, R]) -> TaskFunction[P, R]:
        return TaskFunction(function, expected_s, needs, stand_in)

    return decorate if function is None else decorate(function)


def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Task:
    """A task that calls `function(*args, **kwargs)`; say more with `.needs(...)`."""
    if not callable(function):
        raise InputError(f"a task needs a function, not {function!r}", hint="call(function, *arguments)")
    stand_in = function._stand_in if isinstance(function, TaskFunction) else None
    name = getattr(function, "__name__", type(function).__name__)
    return Task(name=name, function=function, args=args, kwargs=kwargs, stand_in=stand_in)


def command(
    *argv: str,
    name: str | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    capture: tuple[str, ...] = (),
) -> Task:
    """A task that runs a program; its result is a `CommandResult`."""
    if not argv or not all(isinstance(word, str) for word in argv):
        raise InputError("a command needs at least one word, all of them text", hint='command("./a.out", "-v")')
    return Task(
        name=name or argv[0].rsplit("/", 1)[-1],
        command=tuple(argv),
        cwd=cwd,
        env=dict(env or {}),
        capture=tuple(capture),
    )


@dataclass(frozen=True)
class CommandResult:
    """How a command ended, the end of what it printed, and the files it was asked to hand over."""

    exit_code: int
    stdout: str
    stderr: str
    files: Mapping[str, bytes] = field(default_factory=dict)


class JsonText(str):
    """JSON that nobody has read yet: forwarded and stored as it is."""

    __slots__ = ()


def json_text(value: Any) -> JsonText:
    """A value as JSON; raises `ValueError` for NaN and infinities. Text that nobody has read stays as it is."""
    return value if isinstance(value, JsonText) else JsonText(json.dumps(value, allow_nan=False))


@dataclass(frozen=True)
class PayloadFacts:
    """What a check has to know of a body, whatever the device: found once, where the body is read."""

    size: int = 0  # variables, qubits or atoms; of several circuits the largest
    used: int = 0  # qubits of the largest circuit that something is done with
    gates: tuple[str, ...] = ()  # of all circuits, by name
    pairs: tuple[tuple[int, int], ...] = ()  # qubits that a gate brings together, in order
    scattered: bool = False  # some gate is on qubits that are not written as plain numbers, or on more than two
    channels: tuple[str, ...] = ()  # of a pulse sequence
    bits: int = 0  # classical bits of the largest circuit
    operations: int = 0  # of all circuits, with loops and gate definitions written out
    duration_ns: int = 0  # of a pulse sequence
    circuits: int = 1
    shots: int = 0  # that a vendor's own payload asks for; 0: it does not say
    local: str = ""  # what drives variables, qubits or atoms one by one; empty if nothing does
    set_up: str | None = None  # the set-up key


OWN_OPTIONS = ("seed", "job", "work", "vartype")  # of a payload, besides those of its device


@plain_value
class Payload:
    """What a QPU is given. `kind` says how to read `body`: megabytes perhaps, and read only where that is needed."""

    kind: str  # "qubo", "openqasm3", "pulser", "qrmi", "delay" or "command"
    body: Any  # a value, or `JsonText`
    shots: int = 100
    seconds: float | None = None  # how long an emulated device takes, whatever its technology
    device: str | None = None  # the one that is wanted; None: any
    name: str = "quantum"
    options: Mapping[str, Any] = field(default_factory=dict)  # of its device, such as `layers`, and `OWN_OPTIONS`
    facts: PayloadFacts | None = field(default=None, compare=False, repr=False)  # None: not read yet

    @property
    def value(self) -> Any:
        """The body, read."""
        return json.loads(self.body) if isinstance(self.body, JsonText) else self.body

    @property
    def text(self) -> JsonText:
        """The body as JSON; raises `TypeError` or `ValueError` for what is not JSON."""
        return json_text(self.body)

    @property
    def device_options(self) -> dict[str, Any]:
        """The options that are for the device."""
        return {name: value for name, value in self.options.items() if name not in OWN_OPTIONS}

    @property
    def variables(self) -> int:
        """How many qubits a device needs for a QUBO; 0: any will do."""
        return len(self.body["linear"]) if self.kind == "qubo" else 0


@plain_value
class Work:
    """A task as one job asked for it: known by its content (`key`) and how often that was asked before."""

    task: Task
    job: str
    key: str
    occurrence: int
    phase: int = field(default=0, compare=False)  # the number of the call that it belongs to; 0: none yet
    place: int = field(default=0, compare=False)  # in that call
    id: str = field(init=False, compare=False)  # its name in the journal

    def __post_init__(self) -> None:
        self.id = f"{self.key}.{self.occurrence}"  # type: ignore[misc]  # frozen to everybody else


@plain_value
class QuantumWork:
    """A payload as one job asked for it; `seed` is derived from the content, so it is the same in any world."""

    payload: Payload
    job: str
    key: str
    occurrence: int
    seed: int
    id: str = field(init=False, compare=False)  # its name in the journal

    def __post_init__(self) -> None:
        self.id = f"{self.key}.{self.occurrence}"  # type: ignore[misc]  # frozen to everybody else

    def for_device(self) -> Payload:
        """The payload as a device is given it: with the seed, and with the name by which its answer is recalled."""
        asked = self.payload
        options = {**asked.options, "seed": self.seed, "job": self.job, "work": self.id}
        return Payload(
            asked.kind, asked.body, asked.shots, asked.seconds, asked.device, asked.name, options, asked.facts
        )


def work_of(payload: Payload) -> QuantumWork:
    """The work that a device was given a payload for; the inverse of `QuantumWork.for_device`."""
    key, _, occurrence = str(payload.options["work"]).rpartition(".")
    return QuantumWork(payload, payload.options["job"], key, int(occurrence), payload.options["seed"])
