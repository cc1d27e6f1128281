"""The port of a world: the primitives that it supplies, its clock, and the leases and requests they are about.

What an allocation means is written once, in `qloom.job.allocation`, against this port, so that worlds cannot drift
apart. Nothing here knows a strategy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from qloom.device import Device
from qloom.model import QpuHold, QuantumWork, Task, Work, plain_value


class Clock(Protocol):
    """Time, real or virtual, in whole microseconds."""

    @property
    def real_time(self) -> bool:
        """Whether time passes by itself."""

    def now_us(self) -> int:
        """Microseconds since the epoch of this world."""

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Let time pass."""

    def call_later(self, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call `then` when the time is up, in its turn; returns a way to cancel."""

    def deadline(self, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call `then` when the time is up, after all else that is due at that instant; returns a way to cancel."""


class UnixClock(Clock):
    """The time of day, with the timers of the running loop. Other clocks in real time count from another zero."""

    real_time = True

    def now_us(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000

    def sleep(self, seconds: float) -> Awaitable[None]:
        """See `Clock.sleep`."""
        return asyncio.sleep(seconds)

    def call_later(self, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """See `Clock.call_later`."""
        return asyncio.get_running_loop().call_later(max(0.0, seconds), then).cancel

    deadline = call_later


@dataclass(slots=True)
class Lease:
    """What a world has granted to one job; the world keeps `nodes` and `shares` up to date."""

    id: str
    job: str
    nodes: list[str]
    device: str | None = None
    shares: int = 0
    engine_us: int | None = None  # the engine's own time of the last grant (Slurm's StartTime)
    engine_id: str | None = None  # what the engine calls what it granted last (a Slurm job)
    ended: bool = False  # given back, all of it, and for good
    failed: bool = False  # its job has failed or was interrupted: the engine's own accounting shows that too


@dataclass(slots=True)
class Request:
    """A wish that waits in line: a new lease, or (with `lease`) more nodes for one."""

    id: str
    job: str
    least_nodes: int
    most_nodes: int
    qpu: QpuHold = QpuHold.TASK
    device: str | None = None
    lease: Lease | None = None
    spare: bool = False  # for work that may never be needed: all others go first
    waited_for: str | None = None  # what was short when it last could not be granted: "nodes" or a device
    after: Lease | None = None  # it has its place in line, but nothing is granted before this one has ended

    @property
    def eligible(self) -> bool:
        """Whether it may be granted, if there is enough: the lease that it comes after has ended."""
        return self.after is None or self.after.ended


@dataclass(frozen=True)
class HandedOn:
    """The job of the engine that goes on with a run, and why the driver before it did not."""

    engine_id: str
    reason: str | None = None  # None: each job of a chain does one phase


@plain_value
class Ran:
    """What a task came to, and for how long its own code ran; `None` if that was all the time that it took."""

    result: Any
    seconds: float | None = None


Running = Coroutine[Any, Any, Ran] | asyncio.Future[Ran]  # a future has been started, a coroutine has not


class Durations(Protocol):
    """What virtual time asks about work: how long it takes, and what came out if that is known."""

    def seconds(self, work: Work | QuantumWork) -> float | None:
        """How long this work takes; None: as the task or the device says."""

    def program_s(self, job: str, call: str | None, awaited: bool) -> float | None:
        """How long a program computes before it makes a call, or (`awaited`) asks for its result; None: unknown."""

    @property
    def measures_programs(self) -> bool:
        """Whether it is known what programs compute themselves."""

    def has(self, work: Work | QuantumWork) -> bool:
        """Whether the result is known."""

    def result(self, work: Work | QuantumWork) -> Any:
        """What came out of this work."""


class World(Protocol):
    """The primitives of a world. None of them may be cancelled: a transition, once begun, is finished."""

    clock: Clock
    node_names: Sequence[str]
    devices: Sequence[Device]  # the QPUs
    shares: Mapping[str, int]  # how many vQPUs each of them is divided into

    async def grant(self, request: Request) -> Lease | None:
        """Wait in line for a new lease, and until it is eligible; `None` if the request was withdrawn first."""

    async def more_nodes(self, request: Request) -> Sequence[str]:
        """Wait in line for more nodes for `request.lease`; none if the request was withdrawn first."""

    def withdraw(self, request: Request) -> None:
        """Leave the line, if the request is still in it."""

    async def drop_nodes(self, lease: Lease, nodes: Sequence[str]) -> int | None:
        """Give some nodes of a lease back; returns the engine's own time of it, if it has one.

        An engine may refuse: what is in `lease.nodes` afterwards is still held.
        """

    async def drop_qpu(self, lease: Lease) -> int | None:
        """Give the QPU of a lease back."""

    async def free(self, lease: Lease) -> int | None:
        """Give all of a lease back."""

    def execute(self, nodes: Sequence[str], work: Work, lease: Lease) -> Running:
        """Run a task. This one may be cancelled: then the task is killed before it ends.

        Raises `NodeLost` if a node failed under it (it is no longer in `lease.nodes`), and `AllocationEnded` if the
        engine took the lease away.
        """

    def nodes_are_short(self) -> bool:
        """Whether somebody waits for nodes, other than for spare work. A world that does not know returns False."""
        return False

    def asked_nodes(self, lease: Lease) -> int | None:
        """How many nodes a scheduler wants a malleable job to keep to; None as long as it asked for nothing."""
        return None

    def program_s(self, job: str, call: str | None, awaited: bool) -> float | None:
        """In virtual time: how long a program computes before a call, as a profile has it. See `Durations`."""
        return None

    def measures_programs(self) -> bool:
        """Whether it is known, or measured here, what programs compute themselves."""
        return self.clock.real_time

    def check_task(self, task: Task) -> None:
        """Raise `NeedError` if no node of this world could ever run the task."""

    @property
    def tasks_without_expectation(self) -> Sequence[str]:
        """Names of tasks whose length nobody knows: in virtual time they took none."""
        return ()

    @property
    def handed_on(self) -> HandedOn | None:
        """Who goes on with the run, if this driver has ended for that."""
        return None

    def executes_quantum(self) -> bool:
        """Whether a device of this world, and not of a broker elsewhere, executes a task that would be lost."""
        return False

    def who_waits(self) -> list[str]:
        """Who stands in line and for what, in plain words."""
        return []

    def require_all_free(self) -> None:
        """After a run: raise if something is still held or asked for."""

    async def close(self) -> None:
        """Cancel what is left, and end all workers."""
