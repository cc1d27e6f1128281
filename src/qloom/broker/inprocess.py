"""The queue core at work inside one process: carries out its actions on the devices of a world."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from qloom.aio import finish
from qloom.broker.port import Session
from qloom.broker.queue import events
from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.promise import DeviceSpec
from qloom.broker.queue.task import QuantumTask
from qloom.device import FINAL, Device
from qloom.errors import PayloadError, QuantumFailed
from qloom.journal.event import Kept
from qloom.journal.events import QuantumEnded, QuantumQueued, QuantumStarted
from qloom.journal.file import Recorder
from qloom.model import QpuHold, QuantumWork
from qloom.ports import Clock


class LocalSession:
    """A hold on a device, or on a share of it."""

    def __init__(self, broker: InProcessBroker, id: str, device: str, hold: QpuHold) -> None:
        self._broker = broker
        self.id = id
        self.device = device
        self.hold = hold

    async def close(self) -> None:
        """End the hold, once its tasks are done. May be called again."""
        await self._broker.drain(self.id)
        self._broker.close_session(self.id)


class InProcessBroker:
    """One line per device, shared by all jobs of a world."""

    def __init__(
        self, devices: Sequence[Device], shares: Mapping[str, int], clock: Clock, queue_call_s: float = 0.0
    ) -> None:
        described = [device.description for device in devices]
        self.specs = [DeviceSpec(device.name, shares[device.name], device.lanes) for device in described]
        self.core = QueueCore(self.specs)
        self.devices = {device.description.name: device for device in devices}
        self._clock = clock
        self._queue_call_s = queue_call_s
        self._opened: dict[str, asyncio.Future[None]] = {}
        self._results: dict[str, asyncio.Future[Any]] = {}
        self._works: dict[str, tuple[QuantumWork, Recorder, str | None]] = {}
        self._runners: dict[str, asyncio.Task[Any]] = {}
        self._sessions_made = 0
        self._tasks_made = 0
        self._watchers = [asyncio.ensure_future(self._watch(device)) for device in devices if device.outages_s]

    # Devices

    def choose(self, name: str | None, variables: int = 0) -> str:
        """The device to use: the one that was named, or else the one that is up with the least to do.

        One that is too small for so many variables is taken only if all are.
        """
        if name is not None:
            self.core.is_up(name)  # raises if there is none
            return name
        if not self.devices:
            raise QuantumFailed("this site has no QPU", hint="add one with --qpu NAME:TECHNOLOGY")
        able = list(self.devices)
        if variables:
            able = [name for name in able if variables <= self.devices[name].description.qubits] or able
        return min(able, key=lambda device: (not self.core.is_up(device), self.core.backlog_s(device)))

    def expected_wait_s(self, name: str, session: str | None = None) -> float | None:
        """Seconds until a new task would start; None while the device is away, or held by another session."""
        held = self.core.owner(name) not in (None, session)
        return self.core.expected_wait_s(name) if self.core.is_up(name) and not held else None

    def _require_return(self, name: str) -> None:
        """Refuse to wait for a device that nobody expects back."""
        now_s = self._clock.now_us() / 1e6
        if any(until is None and begin <= now_s for begin, until in self.devices[name].outages_s):
            hint = "use or_classical=, another device, or wait until it is back"
            raise QuantumFailed(f"QPU {name} is offline and no return is planned", hint=hint)

    def _check(self, work: QuantumWork, name: str) -> None:
        """Refuse what the device cannot take."""
        try:
            self.devices[name].check(work.payload)
        except PayloadError as error:
            error.job = work.job
            raise

    async def _watch(self, device: Device) -> None:
        name = device.description.name
        for begin, until in device.outages_s:
            now_s = self._clock.now_us() / 1e6
            if until is not None and until <= now_s:
                continue  # over before this run was resumed
            if begin > now_s:
                await self._clock.sleep(begin - now_s)
            self._handle(events.DeviceUp(name, False))
            if until is None:
                return
            await self._clock.sleep(until - self._clock.now_us() / 1e6)
            self._handle(events.DeviceUp(name, True))

    # Sessions

    async def open_session(self, device: str, hold: QpuHold, job: str, engine_id: str | None = None) -> Session:
        """Wait in line for a session; if the caller is cancelled, the request is withdrawn."""
        self._require_return(device)
        self._sessions_made += 1
        session = LocalSession(self, f"s{self._sessions_made}", device, hold)
        opened = self._opened[session.id] = asyncio.get_running_loop().create_future()
        self._handle(events.SessionRequested(session.id, device, hold))
        try:
            await opened
        except asyncio.CancelledError:
            self.close_session(session.id)
            raise
        return session

    async def drain(self, session: str) -> None:
        """Wait until no task of a session is queued or executing."""
        while waiting := [
            self._results[task]
            for task, (_, _, own) in self._works.items()
            if own == session and task in self._results
        ]:
            await asyncio.wait(waiting)
            await asyncio.sleep(0)

    def close_session(self, session: str) -> None:
        """End a session at once, or withdraw the request for it."""
        self._opened.pop(session, None)
        self._handle(events.SessionClosed(session))

    # Tasks

    async def run(self, work: QuantumWork, device: str, session: Session | None, recorder: Recorder) -> Any:
        """Queue a payload and wait for its answer; if the caller is cancelled, so is the task."""
        self._check(work, device)
        if self._queue_call_s:
            await self._clock.sleep(self._queue_call_s)
        if session is None:
            self._require_return(device)
        self._tasks_made += 1
        task = f"t{self._tasks_made}"
        result = self._results[task] = asyncio.get_running_loop().create_future()
        self._works[task] = (work, recorder, session.id if session else None)
        hold = session.hold.value if session else QpuHold.TASK.value
        recorder.record(QuantumQueued(work=work.id, name=work.payload.name, device=device, hold=hold))
        expected_s = self.devices[device].seconds(work.payload)
        self._handle(events.TaskSubmitted(QuantumTask(task, device, session.id if session else None, expected_s)))
        try:
            return await result
        except asyncio.CancelledError:
            self._handle(events.TaskCancelled(task))
            if (runner := self._runners.get(task)) is not None:
                await finish(runner)
            else:
                self._ended(task, device, "cancelled")
            raise
        finally:
            self._results.pop(task, None)

    def _start(self, task: str, device: str) -> None:
        runner = self._runners[task] = asyncio.ensure_future(self._execute(task, device))
        runner.add_done_callback(lambda runner: self._finished(task, device, runner))

    async def _execute(self, task: str, device: str) -> Any:
        work, recorder, _session = self._works[task]
        recorder.record(QuantumStarted(work=work.id, device=device))
        self._handle(events.TaskAdvanced(task, "executing"))
        return await _run_on_device(self.devices[device], task, work)

    def _finished(self, task: str, device: str, runner: asyncio.Task[Any]) -> None:
        del self._runners[task]
        work, recorder, _session = self._works[task]
        result = self._results.get(task)
        if runner.cancelled():
            self._ended(task, device, "cancelled")
        elif (error := runner.exception()) is not None:
            failure = (
                error if isinstance(error, QuantumFailed) else QuantumFailed(f"QPU {device}: {error}", job=work.job)
            )
            self._ended(task, device, "failed", error=str(failure))
            if result is not None and not result.done():
                result.set_exception(failure)
        else:
            self._ended(task, device, "done", result=recorder.keep(runner.result()))
            if result is not None and not result.done():
                result.set_result(runner.result())
        self._handle(events.TaskFinished(task, ok=not runner.cancelled() and runner.exception() is None))

    def _ended(
        self, task: str, device: str, state: str, result: Kept | None = None, error: str | None = None
    ) -> None:
        work, recorder, _session = self._works.pop(task)
        ended = QuantumEnded(work=work.id, device=device, state=state, result=result, error=error)
        recorder.record(ended, durable=state == "done")

    def who_waits(self) -> list[str]:
        """One line for each session and each task that somebody waits for, in plain words."""
        lines = [f"session {session} is not open yet" for session in self._opened]
        for task, (work, _, session) in self._works.items():
            where = f"in session {session}" if session is not None else "outside any session"
            state = self.core.state(task) if self.core.knows(task) else "lost: its queue does not know it"
            lines.append(f"job {work.job} waits for quantum task {work.payload.name} {where}, which is {state}")
        return lines

    async def close(self) -> None:
        """Stop what executes. Jobs that ended well have left nothing."""
        leftovers = [*self._watchers, *self._runners.values()]
        for leftover in leftovers:
            leftover.cancel()
        if leftovers:
            await asyncio.wait(leftovers)

    def _handle(self, event: events.Event) -> None:
        for action in self.core.handle(event, self._clock.now_us()):
            match action:
                case events.StartTask(task, device):
                    self._start(task, device)
                case events.StopTask(task):
                    self._runners[task].cancel()
                case events.OpenSession(session):
                    opened = self._opened.pop(session, None)
                    if opened is not None and not opened.done():
                        opened.set_result(None)


async def _run_on_device(device: Device, token: str, work: QuantumWork) -> Any:
    """One task on its device, from its start to its answer; if the caller is cancelled, it is stopped there."""
    id = await device.start(token, work.for_device())
    try:
        while (status := await device.wait(id)).state not in FINAL:
            pass
    except asyncio.CancelledError:
        await device.stop(id)
        raise
    if status.state != "done":
        story = status.error or f"QPU {device.description.name}: the task was {status.state}"
        raise QuantumFailed(story, job=work.job)
    return await device.result(id)
