"""Tasks and sessions that are not over, as a broker keeps them; and those who wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from qloom.broker.queue.events import SessionRequested
from qloom.broker.queue.policies import Project
from qloom.broker.queue.state import KnownSession
from qloom.broker.queue.task import NOTHING, Counted, Place, QuantumTask
from qloom.broker.requests import Caller
from qloom.model import QpuHold
from qloom.world import Clock


class Waiters(list["asyncio.Future[None]"]):
    """Those who wait for a change of one record."""

    __slots__ = ()

    def wake(self) -> None:
        """The change has come."""
        for waiter in self:
            if not waiter.done():
                waiter.set_result(None)
        self.clear()

    async def wait(self, clock: Clock, within_s: float | None = None) -> None:
        """Wait for the change, for at most `within_s` seconds. Whoever stops waiting leaves nothing behind."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.append(changed)
        try:
            if within_s is None:
                await changed
            else:
                await self._wait_within(changed, clock, within_s)
        finally:
            if changed in self:
                self.remove(changed)

    @staticmethod
    async def _wait_within(changed: asyncio.Future[None], clock: Clock, within_s: float) -> None:
        def give_up() -> None:
            changed.cancel()

        cancel = clock.deadline(within_s, give_up)
        try:
            await asyncio.wait([changed])
        finally:
            cancel()


@dataclass(eq=False, slots=True)
class TaskRecord:
    """A task that is not over, as a broker and its store keep it."""

    id: str
    user: str
    project: str
    name: str
    device: str
    session: str | None
    job: str  # that it belongs to: the Slurm job that it goes on in, if that changes
    submitted_us: int
    expected_s: float = 0.0
    priority: int = 0
    max_wait_s: float | None = None
    time_limit_s: float | None = None
    set_up: str | None = None
    places: tuple[Place, ...] = ()
    key: str | None = None
    note: str = ""  # of the door that it came through
    state: str = "queued"
    attempts: int = 0
    started_us: int | None = None  # first handed over
    executing_us: int | None = None  # of the present attempt
    token: str | None = None  # of the present attempt
    device_id: str | None = None
    reattached: bool = False  # whether another run of the broker handed it over
    stop_wanted: bool = False
    over: bool = False  # its end is on its way to the store
    refused: bool = False  # it could not be stored, so it was never accepted
    result: Any = None  # as the registry keeps it
    calibration: str | None = None  # of its device, as it was executed
    error: str = ""
    billed_s: float | None = None  # by all attempts
    held: bool = False  # an administrator holds it
    wanted_again: bool = False  # once it is taken back from its device, it is queued again
    counted: Counted = NOTHING  # as it was when the broker stopped
    counted_us: int | None = None  # since when its execution counts, then
    begun: Waiters = field(default_factory=Waiters)  # for its execution, or its end
    ended: Waiters = field(default_factory=Waiters)

    def quantum_task(self) -> QuantumTask:
        """As it is submitted to the queue."""
        return QuantumTask(
            self.id,
            self.device,
            self.session,
            self.expected_s,
            self.project,
            self.job,
            self.priority,
            self.max_wait_s,
            self.time_limit_s,
            self.set_up,
            self.places,
        )

    def restored(self, counted_from_us: Callable[[int], int]) -> QuantumTask:
        """As the queue takes it up after a restart; its limits are counted from where the broker says."""
        task = self.quantum_task()
        task.state, task.attempts, task.counted = self.state, self.attempts, self.counted
        task.queued_us = counted_from_us(self.submitted_us)
        task.since_us = counted_from_us(self.counted_us or self.executing_us or self.started_us or self.submitted_us)
        return task

    def move(self, place: Place, places: tuple[Place, ...]) -> None:
        """Wait for another device, and perhaps return to one of `places`."""
        self.device, self.expected_s = place.device, place.expected_s
        self.time_limit_s, self.set_up, self.places = place.time_limit_s, place.set_up, places

    def view(self) -> dict[str, Any]:
        """What its owners see."""
        return {
            "id": self.id,
            "name": self.name,
            "user": self.user,
            "project": self.project,
            "device": self.device,
            "session": self.session,
            "state": self.state,
            "held": self.held,
            "reason": "",
            "attempts": self.attempts,
            "expected_s": self.expected_s,
            "submitted_us": self.submitted_us,
            "started_us": self.started_us,
            "executing_us": self.executing_us,
            "ended_us": None,
            "billed_s": None,
            "calibration": None,
        }


@dataclass(eq=False, slots=True)
class SessionRecord:
    """A session that was requested or is open."""

    id: str
    user: str
    project: str
    device: str
    hold: QpuHold
    job: str
    requested_us: int
    key: str | None = None
    state: str = "waiting"  # or "open"
    opened_us: int | None = None
    turn_us: int = 0
    used_us: int = 0
    shared: bool = False  # all members of its project may use it, not only its owner
    idle_limit_s: float | None = None  # of a hold of the whole device, see `SessionRequested`
    hold_limit_s: float | None = None
    last_us: int = 0  # when a task of it was last there, before the broker stopped
    changed: Waiters = field(default_factory=Waiters)  # for it to be opened or closed

    def open(self, now_us: int) -> None:
        """The session holds its device, or its share, from now on."""
        self.state, self.opened_us, self.used_us = "open", now_us, now_us

    def limit_hold(self, project: Project) -> None:
        """Limit how long the session may hold a whole device, as its project may."""
        if self.hold is QpuHold.WHOLE:
            self.idle_limit_s, self.hold_limit_s = project.whole_idle_s, project.whole_hold_s

    def restored(self) -> KnownSession:
        """As the queue takes it up after a restart."""
        last_us = max(self.last_us, self.turn_us)
        return KnownSession(self.requested(), self.state == "open", self.turn_us, self.opened_us or 0, last_us)

    def usable_by(self, who: Caller) -> bool:
        """Whether a caller may run tasks in it."""
        return self.user == who.user or (self.shared and self.project in who.projects)

    def requested(self) -> SessionRequested:
        """As the queue core takes it."""
        limits_s = self.idle_limit_s, self.hold_limit_s
        return SessionRequested(self.id, self.device, self.hold, self.project, self.job, *limits_s)

    def view(self) -> dict[str, Any]:
        """What its owners see."""
        return {
            "id": self.id,
            "device": self.device,
            "hold": self.hold.value,
            "user": self.user,
            "project": self.project,
            "shared": self.shared,
            "state": self.state,
            "requested_us": self.requested_us,
            "opened_us": self.opened_us,
        }
