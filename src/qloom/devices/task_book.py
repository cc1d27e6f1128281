"""The tasks that an emulated device was given: found by token and id, kept for a while when over, booked for longer.

Answers that nobody has fetched are kept ten times as long as others. Nothing here knows time or what is computed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from qloom.device import FINAL, Status
from qloom.model import Payload

KEPT = 1000  # tasks that are over, with their answers; the oldest are forgotten first
KEPT_BYTES = 256 * 2**20  # of their answers
BOOKED = 100_000  # tasks whose billed seconds are known
NOTHING = Payload("delay", None)
QUEUED = Status("vendor_queued")


@dataclass(slots=True, eq=False)
class EmulatedTask:
    """A task that an emulated device was given."""

    id: str
    token: str
    payload: Payload
    fault: str | None
    status: Status = QUEUED
    reported: str = ""  # the last state that `wait` returned
    answer: Any = None
    fetched: bool = False
    waiters: list[asyncio.Future[None]] = field(default_factory=list)  # for the next change of its status
    began_us: int = 0
    calibration: str | None = None  # of the device when the task began
    whole_s: float = 0.0  # what it takes by the time scale
    cancel_timer: Callable[[], None] | None = None  # until its time is up
    computing: asyncio.Future[Any] | None = None

    def change(self, status: Status) -> None:
        """Set the status and wake who waits for a change."""
        self.status = status
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()

    @property
    def answer_bytes(self) -> int:
        """Bytes of the answer, if it is kept as text."""
        return len(self.answer) if isinstance(self.answer, str) else 0

    @property
    def is_known(self) -> bool:
        """Whether nobody will ask for the outcome any more."""
        return self.fetched or (self.status.state != "done" and self.reported in FINAL)


class TaskBook:
    """The tasks of one device. `billed_s` has the seconds of those that are over, by id."""

    def __init__(self) -> None:
        self.billed_s: dict[str, float] = {}
        self._tasks: dict[str, EmulatedTask] = {}
        self._ids: dict[str, str] = {}  # by token
        self._over: deque[EmulatedTask] = deque()
        self._kept_bytes = 0

    def add(self, task: EmulatedTask) -> None:
        """Take a new task in."""
        self._tasks[task.id] = task
        self._ids[task.token] = task.id

    def id_of(self, token: str) -> str | None:
        """The id of the task that was handed over with this token, if it is still kept."""
        return self._ids.get(token)

    def get(self, id: str) -> EmulatedTask | None:
        """The task of this id, if it is still kept."""
        return self._tasks.get(id)

    def finish(self, task: EmulatedTask, status: Status) -> None:
        """A task is over: book it, and forget the oldest of those that are too many."""
        task.change(status)
        self.billed_s[task.id] = status.billed_s or 0.0
        self._over.append(task)
        self._kept_bytes += task.answer_bytes
        task.payload = NOTHING  # large ones are not kept
        task.computing = None
        while len(self._over) > KEPT or self._kept_bytes > KEPT_BYTES:
            old = self._over[0]
            if not old.is_known and len(self._over) <= 10 * KEPT and self._kept_bytes <= 10 * KEPT_BYTES:
                break  # somebody will ask for it
            self._over.popleft()
            del self._tasks[old.id]
            self._ids.pop(old.token, None)
            self._kept_bytes -= old.answer_bytes
        while len(self.billed_s) > BOOKED:
            del self.billed_s[next(iter(self.billed_s))]
