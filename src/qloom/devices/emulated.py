"""Emulated devices: tasks take as long as a technology would, while a process of its own computes the answer.

A heavy or crashing solver never blocks or stops the broker. Tasks that come while the device calibrates, is drained
or has no free lane wait in its own queue: none is lost. What it knows is gone with the broker's process: then
`find` says None, and the broker starts the task again.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from qloom.device import STATES, Description, Status
from qloom.devices.check import check_payload, seconds_of, set_up_key_of
from qloom.devices.child import ChildDied, OutOfCpuTime
from qloom.devices.computing import Solvers
from qloom.devices.faults import Faults
from qloom.devices.windows import Window, left_s
from qloom.errors import InputError, QloomError, QuantumFailed, UnknownTask, Unreachable
from qloom.model import JsonText, Payload

MEMORY_MIB = 4096  # of one solver
LIMITS = ("qubits", "max_bits", "max_operations", "max_duration_ns", "max_answer_bytes")  # solvers hold to them too
FINAL = ("done", "failed", "cancelled")
KEPT = 1000  # tasks that are over, with their answers; the oldest are forgotten first
KEPT_BYTES = 256 * 2**20  # of their answers
BOOKED = 100_000  # tasks in the books


@dataclass
class _Task:
    id: str
    token: str
    payload: Payload
    fault: str | None
    status: Status = field(default_factory=lambda: Status("vendor_queued"))
    told: str = ""  # the last state that `wait` told
    answer: JsonText | None = None
    fetched: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    running: asyncio.Task[None] | None = None
    began_s: float = 0.0


class EmulatedDevice:
    """A device with a solver, a time scale, lanes, and states."""

    def __init__(
        self,
        description: Description,
        solver: str,
        *,
        windows: Sequence[Window] = (),
        faults: Faults | None = None,
        solver_time_limit_s: float = 600.0,
        memory_mib: int | None = MEMORY_MIB,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.description = description
        self._windows = tuple(windows)
        self._faults = faults or Faults()
        self._clock = clock
        self._solvers = Solvers(solver, solver_time_limit_s, memory_mib)
        self._tasks: dict[str, _Task] = {}
        self._tokens: dict[str, str] = {}
        self._attempts: dict[str, int] = {}
        self._over: deque[str] = deque()
        self._kept_bytes = 0
        self._books: dict[str, float] = {}
        self._queue: deque[_Task] = deque()
        self._busy: dict[str, None] = {}
        self._last_set_up: str | None = None
        self._set_state = ""  # maintenance, error or offline; empty: none of them
        self._timer: asyncio.TimerHandle | None = None

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
        if self._set_state:
            return self._set_state
        if left_s(self._windows, self._clock()) > 0:
            return "calibration"
        return "busy" if self._busy else "idle"

    async def tasks(self) -> dict[str, float]:
        """See `Device.tasks`."""
        return dict(self._books)

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
        if token in self._tokens:
            return self._tokens[token]
        self.check(payload)
        if self._set_state in ("offline", "error"):
            raise Unreachable(f"{self.description.name} is in state {self._set_state}")
        attempt = self._attempts.get(token, 0)
        fault = self._faults.of(token, attempt)
        if fault is not None:
            self._attempts[token] = attempt + 1
        if fault == "refuse":
            raise Unreachable(f"{self.description.name} does not answer")
        task = _Task(f"{self.description.name}:{token}", token, payload, fault)
        self._tasks[task.id] = task
        self._tokens[token] = task.id
        self._queue.append(task)
        self._serve()
        if fault == "lost":
            raise Unreachable(f"{self.description.name} did not answer in time")
        return task.id

    async def find(self, token: str) -> str | None:
        """See `Device.find`."""
        return self._tokens.get(token)

    async def wait(self, id: str) -> Status:
        """See `Device.wait`."""
        task = self._known(id)
        while task.status.state == task.told and task.status.state not in FINAL:
            task.changed.clear()
            await task.changed.wait()
        task.told = task.status.state
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
        if task.running is None:
            self._queue.remove(task)
            self._finish(task, Status("cancelled", billed_s=0.0))
        else:
            task.running.cancel()
            await asyncio.gather(task.running, return_exceptions=True)
            if task.status.state not in FINAL:  # cancelled before its first step
                self._busy.pop(id, None)
                self._finish(task, Status("cancelled", billed_s=0.0))
                self._serve()

    async def close(self) -> None:
        """See `Device.close`. Here the tasks end too: they live in this process."""
        self._set_state = "offline"
        if self._timer is not None:
            self._timer.cancel()
        running = [task.running for name in self._busy if (task := self._tasks[name]).running is not None]
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._solvers.close()

    # The device's own queue

    def _serve(self) -> None:
        """Start what can be started now; come back when a calibration ends."""
        while self._queue and not self._set_state and len(self._busy) < self.description.lanes:
            away_s = left_s(self._windows, self._clock())
            if away_s > 0:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.get_running_loop().call_later(away_s + 0.001, self._serve)
                return
            task = self._queue.popleft()
            if self._takes_no_time(task):
                task.answer = task.payload.text
                self._finish(task, Status("done", billed_s=0.0))
                continue
            self._busy[task.id] = None
            self._change(task, Status("preparing"))  # as soon as it is taken from the queue
            task.running = asyncio.create_task(self._execute(task))

    def _takes_no_time(self, task: _Task) -> bool:
        """A delay of zero seconds is over at once, for benchmarks: no timer, no process."""
        return task.payload.kind == "delay" and task.payload.seconds == 0 and task.fault in (None, "lost")

    async def _execute(self, task: _Task) -> None:
        loop = asyncio.get_running_loop()
        task.began_s = loop.time()
        whole_s = self.seconds(task.payload)
        set_up_s = min(self.description.set_up_s, whole_s) if task.payload.kind != "delay" else 0.0
        key = self.set_up_key(task.payload)
        if self.description.set_up_shared and key is not None and key == self._last_set_up:
            whole_s, set_up_s = whole_s - set_up_s, 0.0
        self._last_set_up = key
        solving = None if task.payload.kind == "delay" else asyncio.create_task(self._solve(task))
        status = Status("done", billed_s=whole_s)
        try:
            if set_up_s > 0:
                self._change(task, Status("preparing"))
                await asyncio.sleep(set_up_s)
            self._change(task, Status("executing"))
            await asyncio.sleep((whole_s - set_up_s) / (2 if task.fault == "fail" else 1))
            if task.fault == "fail":
                status = Status("failed", loop.time() - task.began_s, "the device failed (injected)", fault=True)
            else:
                on_time = solving is None or solving.done()
                task.answer = task.payload.text if solving is None else await solving
                if not on_time and task.payload.seconds is not None:  # not as short as the user said
                    status = Status("done", billed_s=loop.time() - task.began_s)
        except asyncio.CancelledError:
            status = Status("cancelled", billed_s=loop.time() - task.began_s)
        except OutOfCpuTime as error:
            status = Status("failed", loop.time() - task.began_s, f"{error.message} (solver_time_limit_s)")
        except ChildDied as error:
            status = Status("failed", loop.time() - task.began_s, error.message, fault=True)
        except QloomError as error:
            status = Status("failed", loop.time() - task.began_s, str(error))
        finally:
            if solving is not None and not solving.done():
                solving.cancel()
                await asyncio.gather(solving, return_exceptions=True)
        self._busy.pop(task.id, None)
        self._finish(task, status)
        self._serve()

    async def _solve(self, task: _Task) -> Any:
        payload = task.payload
        seed = payload.options.get("seed")
        if isinstance(seed, bool) or not isinstance(seed, int):
            seed = int.from_bytes(hashlib.sha256(task.token.encode()).digest()[:4], "big")
        request = {
            "kind": payload.kind,
            "shots": payload.shots,
            "seed": seed,
            "options": payload.options,
            "limits": {name: getattr(self.description, name) for name in LIMITS},
        }
        return await self._solvers.solve(request, payload.text, crash=task.fault == "crash")

    def _change(self, task: _Task, status: Status) -> None:
        task.status = status
        task.changed.set()

    def _finish(self, task: _Task, status: Status) -> None:
        self._change(task, status)
        self._books[task.id] = status.billed_s or 0.0
        self._over.append(task.id)
        self._kept_bytes += len(task.answer or "")
        task.payload = Payload(task.payload.kind, None)  # large ones are not kept
        while len(self._over) > KEPT or self._kept_bytes > KEPT_BYTES:
            old = self._tasks[self._over[0]]
            known = old.fetched or (old.status.state != "done" and old.told in FINAL)
            if not known and len(self._over) <= 10 * KEPT and self._kept_bytes <= 10 * KEPT_BYTES:
                break  # somebody will ask for it
            self._over.popleft()
            del self._tasks[old.id]
            self._tokens.pop(old.token, None)
            self._kept_bytes -= len(old.answer or "")
        while len(self._books) > BOOKED:
            del self._books[next(iter(self._books))]

    def _known(self, id: str) -> _Task:
        try:
            return self._tasks[id]
        except KeyError:
            raise UnknownTask(f"{self.description.name} has no task {id}") from None
