"""The records of tasks and sessions that are not over, in memory.

The dispatcher passes every change of a record through here. Whoever has to know of changes extends the registry: the
service stores and publishes them (`stored.py`), a run writes them to its journal (`inprocess.py`). What is to change
is decided elsewhere: by the queue.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from qloom.broker.problems import StoreFull
from qloom.broker.queue.task import Counted, Place
from qloom.broker.records import SessionRecord, TaskRecord, Waiters
from qloom.model import Payload
from qloom.world import Clock

LOG = logging.getLogger("qloom.broker")
Then = Callable[[StoreFull | None], None]


class _AtOnce:
    """Awaits nothing."""

    def __await__(self) -> Generator[Any, None, None]:
        return iter(())  # type: ignore[return-value]


AT_ONCE = _AtOnce()


class TaskRegistry:
    """The records of a broker that ends with its process: nothing is stored, so every change counts at once."""

    def __init__(self, clock: Clock) -> None:
        self.tasks: dict[str, TaskRecord] = {}
        self.sessions: dict[str, SessionRecord] = {}
        self._clock = clock
        self._may_wait = True

    # Tasks

    def start_task(self, task: TaskRecord) -> None:
        """Note that a task is about to be handed to its device, under a new token."""
        task.state, task.attempts = "preparing", task.attempts + 1
        task.started_us = task.started_us or self._clock.now_us()
        task.token = f"{task.id}-{task.attempts}"

    def hand_over(self, task: TaskRecord, device_id: str, state: str) -> None:
        """The device has taken a task, which is now in `state` there; the record follows once this is durable."""
        task.device_id = device_id

    def set_state(self, task: TaskRecord, state: str, now_us: int, *, stored: bool) -> None:
        """Set the state that a device reports for a task; `stored` if `hand_over` has stored it already."""
        task.state = state
        if state == "executing":
            task.executing_us = now_us
            task.begun.wake()

    def count_execution(self, task: TaskRecord, ran_us: int, since_us: int | None) -> None:
        """Execution of a task counts from `since_us` on, or not while its device is away; `ran_us` was before."""

    def move_task(self, task: TaskRecord, place: Place, places: tuple[Place, ...]) -> None:
        """A task waits for another device from now on."""
        LOG.info("task %s goes from QPU %s to %s", task.id, task.device, place.device)
        task.move(place, places)

    def want_back(self, task: TaskRecord, *, again: bool = False) -> None:
        """Remember that a task is to be taken back from its device; `again`: to be queued again."""
        task.wanted_again = again or task.wanted_again

    def end_attempt(self, task: TaskRecord, outcome: str, billed_s: float, now_us: int) -> None:
        """The device is done with a task; the task is over or queued again next."""

    def requeue_task(self, task: TaskRecord, counted: Counted) -> None:
        """A task has to wait again."""
        LOG.info("task %s goes back to the queue: %s", task.id, task.error)
        task.state, task.token, task.device_id, task.executing_us = "queued", None, None, None
        task.reattached = task.stop_wanted = task.wanted_again = False

    def end_task(self, task: TaskRecord, state: str, reason: str) -> None:
        """A task is over."""
        task.over = True
        self._remove(task)

    def _remove(self, task: TaskRecord) -> None:
        """Wake those who wait for a task: its end counts, or it was never accepted."""
        self.tasks.pop(task.id, None)
        task.begun.wake()
        task.ended.wake()

    # What a task brings to its device and back

    def payload(self, task: TaskRecord) -> Payload:
        """The payload of a task that is not over: whoever adds tasks knows it."""
        raise NotImplementedError

    def encode(self, answer: Any) -> Any:
        """An answer as it is kept; raises if it cannot be."""
        return answer

    def durable(self, task: TaskRecord) -> Awaitable[None]:
        """Wait until all changes of a task count; raises `StoreFull` if the task was refused."""
        return AT_ONCE

    def then(self, task: TaskRecord, call: Then) -> None:
        """Call once all changes of a task count, or with an error if the task was refused."""
        call(None)

    # Sessions

    def add_session(self, session: SessionRecord) -> None:
        """Record a session that the queue has admitted."""
        self.sessions[session.id] = session

    def open_session(self, session: SessionRecord) -> None:
        """A session holds its device, or its share."""
        session.open(self._clock.now_us())
        session.changed.wake()

    def close_session(self, session: SessionRecord, why: str = "") -> None:
        """A session is over, and its users are shown `why`; what it has on a device is to be taken back."""
        session.state = "closed"
        self.sessions.pop(session.id, None)
        session.changed.wake()

    # Waiting

    async def wait(self, change: Waiters, within_s: float | None = None) -> None:
        """Wait for a change of a record, for at most `within_s` seconds and not once `end_waits` was called."""
        if self._may_wait:
            await change.wait(self._clock, within_s)

    def end_waits(self) -> None:
        """Let everybody go on with what is known now, as if their time was up, and nobody wait from now on."""
        self._may_wait = False
        for task in self.tasks.values():
            task.begun.wake()
            task.ended.wake()
        for session in self.sessions.values():
            session.changed.wake()
