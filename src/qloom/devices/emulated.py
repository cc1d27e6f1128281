"""The emulated device: tasks take as long as a technology would, by the clock that the device is given.

One device for every world and for the broker: local and Slurm give it a real clock and solvers in processes, virtual
time gives it a virtual clock and answers that are recalled or computed on the spot (`Answers`). Tasks that arrive
while it calibrates, is drained or has no free lane wait in its queue: none is lost. What it knows is gone with its
process: then `find` returns None, and whoever asks starts the task again.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from qloom.device import FINAL, STATES, Description, Outage, Status
from qloom.devices.answers import Answers
from qloom.devices.check import check_payload, seconds_of, set_up_key_of
from qloom.devices.child import ChildDied, OutOfCpuTime
from qloom.devices.disruptions import DeviceFaults, Window, calibration_at, is_away, left_s
from qloom.devices.task_book import EmulatedTask, TaskBook
from qloom.errors import InputError, QloomError, QuantumFailed, UnknownTask, Unreachable
from qloom.model import Payload
from qloom.world import Clock

EXECUTING, CANCELLED = Status("executing"), Status("cancelled", billed_s=0.0)


class EmulatedDevice:
    """A device with a time scale, lanes, states and a queue, whose answers somebody else computes."""

    def __init__(
        self,
        description: Description,
        answers: Answers,
        clock: Clock,
        *,
        outages_s: Sequence[Outage] = (),
        windows: Sequence[Window] = (),
        faults: DeviceFaults | None = None,
    ) -> None:
        self.description = description
        self.outages_s = tuple(outages_s)
        self._answers = answers
        self._clock = clock
        self._windows = tuple(windows)
        self._faults = faults
        self._book = TaskBook()
        self._attempts: dict[str, int] = {}
        self._queue: deque[EmulatedTask] = deque()
        self._busy: dict[str, EmulatedTask] = {}
        self._last_set_up: str | None = None
        self._set_state = ""  # maintenance, error or offline; empty: none of them
        self._cancel_wake: Callable[[], None] | None = None  # at the end of a calibration

    # What can be asked at any time

    def check(self, payload: Payload) -> None:
        """See `Device.check`."""
        check_payload(self.description, payload)

    def seconds(self, payload: Payload) -> float:
        """See `Device.seconds`."""
        return seconds_of(self.description, payload)

    def set_up_key(self, payload: Payload) -> str | None:
        """See `Device.set_up_key`."""
        return set_up_key_of(payload)

    async def state(self) -> str:
        """See `Device.state`."""
        now_s = self._clock.now_us() / 1e6
        if self._set_state:
            return self._set_state
        if is_away(self.outages_s, now_s):
            return "offline"
        if left_s(self._windows, now_s) > 0:
            return "calibration"
        return "busy" if self._busy else "idle"

    async def calibration(self) -> str | None:
        """See `Device.calibration`."""
        return self._calibration()

    def _calibration(self) -> str | None:
        return calibration_at(self._windows, self._clock.now_us() / 1e6) if self._windows else None

    async def tasks(self) -> dict[str, float]:
        """See `Device.tasks`."""
        return dict(self._book.billed_s)

    # States

    def drain(self, state: str = "maintenance") -> None:
        """Start nothing more; what runs goes on."""
        if state not in STATES or state in ("idle", "busy", "calibration"):
            raise InputError(f"a device cannot be drained to {state!r}", hint="maintenance, error or offline")
        self._set_state = state

    def resume(self) -> None:
        """Start what has waited."""
        self._set_state = ""
        self._serve()

    # Tasks

    async def start(self, token: str, payload: Payload) -> str:
        """See `Device.start`. A device that is offline or in error raises `Unreachable`."""
        if (known := self._book.id_of(token)) is not None:
            return known
        self.check(payload)
        if self._set_state in ("offline", "error"):
            raise Unreachable(f"{self.description.name} is in state {self._set_state}")
        fault = self._next_fault(token) if self._faults is not None else None
        if fault == "refuse":
            raise Unreachable(f"{self.description.name} does not answer")
        task = EmulatedTask(f"{self.description.name}:{token}", token, payload, fault)
        self._book.add(task)
        self._queue.append(task)
        self._serve()
        if fault == "lost":
            raise Unreachable(f"{self.description.name} did not answer in time")
        return task.id

    def _next_fault(self, token: str) -> str | None:
        assert self._faults is not None  # noqa: S101
        attempt = self._attempts.get(token, 0)
        fault = self._faults.of(token, attempt)
        if fault is not None:
            self._attempts[token] = attempt + 1
        return fault

    async def find(self, token: str) -> str | None:
        """See `Device.find`."""
        return self._book.id_of(token)

    async def wait(self, id: str) -> Status:
        """See `Device.wait`."""
        task = self._known(id)
        while task.status.state == task.reported and task.status.state not in FINAL:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            task.waiters.append(waiter)
            await waiter
        task.reported = task.status.state
        return task.status

    async def result(self, id: str) -> Any:
        """See `Device.result`."""
        task = self._known(id)
        if task.status.state != "done":
            raise QuantumFailed(f"task {id} is {task.status.state} and has no result", hint=task.status.error or None)
        task.fetched = True
        return task.answer

    async def stop(self, id: str) -> None:
        """See `Device.stop`."""
        task = self._known(id)
        if task.status.state in FINAL:
            return
        if id not in self._busy:
            self._queue.remove(task)
            self._book.finish(task, CANCELLED)
            return
        if task.cancel_timer is not None:
            task.cancel_timer()
        if _drop(computing := task.computing) and computing is not None:
            await asyncio.wait([computing])
            _drop(computing)
        if task.status.state not in FINAL:
            self._leave(task, Status("cancelled", billed_s=self._elapsed_s(task)))

    async def close(self) -> None:
        """See `Device.close`. Here the tasks end too: they live in this process."""
        self._set_state = "offline"
        if self._cancel_wake is not None:
            self._cancel_wake()
        for id in list(self._busy):
            await self.stop(id)
        await self._answers.close()

    # The queue

    def _serve(self) -> None:
        """Start what can be started now; come back when a calibration ends."""
        while self._queue and not self._set_state and len(self._busy) < self.description.lanes:
            away_s = left_s(self._windows, self._clock.now_us() / 1e6) if self._windows else 0.0
            if away_s > 0:
                if self._cancel_wake is not None:
                    self._cancel_wake()
                self._cancel_wake = self._clock.call_later(away_s + 0.001, self._serve)
                return
            self._begin(self._queue.popleft())

    def _begin(self, task: EmulatedTask) -> None:
        payload = task.payload
        self._busy[task.id] = task
        task.began_us, task.calibration = self._clock.now_us(), self._calibration()
        task.whole_s = self._takes_s(payload)
        task.change(EXECUTING)
        task.computing = self._answers.begin(task.token, payload, crash=task.fault == "crash")
        if task.computing is None and task.whole_s == 0 and task.fault in (None, "lost"):
            del self._busy[task.id]
            self._book.finish(task, self._outcome(task))  # no timer for what takes no time
        else:
            passing_s = task.whole_s / (2 if task.fault == "fail" else 1)
            task.cancel_timer = self._clock.call_later(passing_s, functools.partial(self._time_is_up, task))

    def _takes_s(self, payload: Payload) -> float:
        """How long a task takes if it begins now: a set-up that the one before it has paid is free."""
        known_s = self._answers.seconds(payload)
        whole_s = self.seconds(payload) if known_s is None else known_s
        if not self.description.set_up_shared:
            return whole_s
        key, before = self.set_up_key(payload), self._last_set_up
        self._last_set_up = key
        return whole_s - min(self.description.set_up_s, whole_s) if key is not None and key == before else whole_s

    def _time_is_up(self, task: EmulatedTask) -> None:
        task.cancel_timer = None
        if task.fault == "fail":
            _drop(task.computing)
            self._leave(task, Status("failed", self._elapsed_s(task), "the device failed (injected)", fault=True))
        elif task.computing is None or task.computing.done():
            self._leave(task, self._outcome(task))
        else:
            task.computing.add_done_callback(functools.partial(self._answer_late, task))

    def _answer_late(self, task: EmulatedTask, computing: asyncio.Future[Any]) -> None:
        if computing.cancelled():  # the task was stopped, and `stop` ends it
            return
        if task.payload.seconds is not None:  # the device takes as long as it says itself, but not less than it took
            task.whole_s = self._elapsed_s(task)
        self._leave(task, self._outcome(task))

    def _outcome(self, task: EmulatedTask) -> Status:
        """How a task ends whose time is up and whose answer is there, or can be computed at once."""
        try:
            if task.computing is None:
                task.answer = self._answers.compute(task.token, task.payload)
            else:
                task.answer = task.computing.result()
        except OutOfCpuTime as error:
            return Status("failed", self._elapsed_s(task), f"{error.message} (solver_time_limit_s)")
        except ChildDied as error:
            return Status("failed", self._elapsed_s(task), error.message, fault=True)
        except QloomError as error:
            return Status("failed", self._elapsed_s(task), str(error))
        except Exception as error:
            return Status("failed", self._elapsed_s(task), f"QPU {self.description.name}: {error}")
        return Status("done", billed_s=task.whole_s, calibration=task.calibration)

    def _elapsed_s(self, task: EmulatedTask) -> float:
        return (self._clock.now_us() - task.began_us) / 1e6

    def _leave(self, task: EmulatedTask, status: Status) -> None:
        """A task leaves its lane, and the next one gets it."""
        del self._busy[task.id]
        self._book.finish(task, status)
        self._serve()

    def _known(self, id: str) -> EmulatedTask:
        task = self._book.get(id)
        if task is None:
            raise UnknownTask(f"{self.description.name} has no task {id}")
        return task


def _drop(computing: asyncio.Future[Any] | None) -> bool:
    """Give up an answer that nobody wants; whether somebody still works on it."""
    if computing is None:
        return False
    if computing.done():
        _ = computing.cancelled() or computing.exception()  # seen
        return False
    return computing.cancel()
