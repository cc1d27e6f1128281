"""The broker of a run: the queue of the service, in the process of the jobs and on the devices of their world.

Nothing is stored here. What becomes of a task is in the journal of its job, from which a run that was killed is
resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qloom.aio import run_to_end
from qloom.answers import executed
from qloom.broker.dispatcher import Dispatcher
from qloom.broker.port import Session
from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.events import DeviceUp, TaskSubmitted
from qloom.broker.queue.lines import DeviceSpec
from qloom.broker.records import SessionRecord, TaskRecord
from qloom.broker.registry import TaskRegistry
from qloom.device import Description, Device
from qloom.devices.choosing import DeviceOffer, choose_device
from qloom.errors import PayloadError, QuantumFailed
from qloom.journal.events import QuantumEnded, QuantumQueued, QuantumStarted
from qloom.journal.file import Recorder
from qloom.model import Payload, QpuHold, QuantumWork
from qloom.world import Clock


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
        self.devices = {device.description.name: device for device in devices}
        self._clock = clock
        self._queue_call_s = queue_call_s
        self._registry = JournaledRegistry(clock)
        self.dispatcher = Dispatcher(QueueCore(self.specs), self._registry, self.devices, clock)
        self._sessions_made = 0
        self._tasks_made = 0
        for device in devices:
            if device.outages_s:
                self.dispatcher.spawn(self._follow_outages(device))

    @property
    def core(self) -> QueueCore:
        """The queue."""
        return self.dispatcher.core

    # Devices

    def choose(self, payload: Payload | None = None) -> str:
        """See `BrokerPort.choose`."""
        core = self.core
        offers = [
            DeviceOffer(device.description, core.is_up(name), core.expected_wait_s(name), device.check)
            for name, device in self.devices.items()
        ]
        return choose_device(offers, payload)

    def describe(self, name: str) -> Description:
        """See `BrokerPort.describe`."""
        return self.devices[name].description

    def takes(self, name: str, payload: Payload) -> bool:
        """See `BrokerPort.takes`."""
        try:
            self.devices[name].check(payload)
        except PayloadError:
            return False
        return payload.device in (None, name)

    def is_up(self, name: str) -> bool:
        """See `BrokerPort.is_up`."""
        return self.core.is_up(name)

    def returns(self, name: str) -> bool:
        """See `BrokerPort.returns`."""
        now_s = self._clock.now_us() / 1e6
        return not any(until is None and begin <= now_s for begin, until in self.devices[name].outages_s)

    async def calibration(self, name: str) -> str | None:
        """See `BrokerPort.calibration`."""
        return await self.devices[name].calibration() if name in self.devices else None

    def expected_wait_s(self, name: str, session: str | None = None) -> float | None:
        """See `BrokerPort.expected_wait_s`."""
        held = self.core.owner(name) not in (None, session)
        return self.core.expected_wait_s(name) if self.core.is_up(name) and not held else None

    def _require_return(self, name: str) -> None:
        """Refuse to wait for a device that nobody expects back."""
        if not self.returns(name):
            hint = "use or_classical=, another device, or wait until it is back"
            raise QuantumFailed(f"QPU {name} is offline and no return is planned", hint=hint)

    async def _follow_outages(self, device: Device) -> None:
        name = device.description.name
        for begin, until in device.outages_s:
            now_s = self._clock.now_us() / 1e6
            if until is not None and until <= now_s:
                continue  # over before this run was resumed
            if begin > now_s:
                await self._clock.sleep(begin - now_s)
            self.dispatcher.handle(DeviceUp(name, False))
            if until is None:
                return
            await self._clock.sleep(until - self._clock.now_us() / 1e6)
            self.dispatcher.handle(DeviceUp(name, True))

    # Sessions

    async def open_session(self, device: str, hold: QpuHold, job: str, engine_id: str | None = None) -> Session:
        """See `BrokerPort.open_session`."""
        self._require_return(device)
        self._sessions_made += 1
        id = f"s{self._sessions_made}"
        session = SessionRecord(id, "", "", device, hold, "", self._clock.now_us())
        actions = self.core.handle(session.requested(), session.requested_us)
        self._registry.add_session(session)
        self.dispatcher.carry_out(actions)
        if session.state == "waiting":
            try:
                await session.changed.wait(self._clock)
            except asyncio.CancelledError:
                self.close_session(id)
                raise
        return LocalSession(self, id, device, hold)

    async def drain(self, session: str) -> None:
        """Wait until no task of a session is queued or executing."""
        while left := [task for task in self._registry.tasks.values() if task.session == session]:
            await left[0].ended.wait(self._clock)

    def close_session(self, id: str) -> None:
        """End a session at once, or withdraw the request for it. May be called again."""
        if (session := self._registry.sessions.get(id)) is not None:
            self.dispatcher.close_session(session)

    # Tasks

    async def run(self, work: QuantumWork, device: str, session: Session | None, recorder: Recorder) -> Any:
        """See `BrokerPort.run`."""
        if self._queue_call_s:
            await self._clock.sleep(self._queue_call_s)
        if session is None:
            self._require_return(device)
        task, asked = self._submit(work, device, session, recorder)
        try:
            await task.ended.wait(self._clock)
        except asyncio.CancelledError:
            self.dispatcher.cancel(task)
            if not task.over:
                await run_to_end(task.ended.wait(self._clock))
            raise
        if asked.failure is not None:
            raise asked.failure
        return task.result

    def _submit(
        self, work: QuantumWork, device: str, session: Session | None, recorder: Recorder
    ) -> tuple[TaskRecord, JobTask]:
        self._tasks_made += 1
        now_us = self._clock.now_us()
        expected_s = self.devices[device].seconds(work.payload)
        place = session.id if session is not None else None
        task = TaskRecord(f"t{self._tasks_made}", "", "", work.payload.name, device, place, "", now_us, expected_s)
        asked = JobTask(work, recorder)
        actions = self.dispatcher.core.handle(TaskSubmitted(task.quantum_task()), now_us)
        self._registry.add_task(task, asked, session.hold if session is not None else QpuHold.TASK)
        self.dispatcher.carry_out(actions)
        return task, asked

    def who_waits(self) -> list[str]:
        """One line for each session and each task that somebody waits for, in plain words."""
        return self._registry.who_waits(self.core)

    async def close(self) -> None:
        """See `BrokerPort.close`. What is on a device ends with the world."""
        await self.dispatcher.close()


@dataclass(eq=False, slots=True)
class JobTask:
    """A task as its job knows it."""

    work: QuantumWork
    recorder: Recorder
    failure: Exception | None = None


class JournaledRegistry(TaskRegistry):
    """The tasks of the jobs of this process: each change is an event in the journal of the job."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._asked: dict[str, JobTask] = {}

    def add_task(self, task: TaskRecord, asked: JobTask, hold: QpuHold) -> None:
        """A task that the queue has admitted."""
        self.tasks[task.id], self._asked[task.id] = task, asked
        queued = QuantumQueued(work=asked.work.id, name=task.name, device=task.device, hold=hold.value)
        asked.recorder.record(queued)

    def payload(self, task: TaskRecord) -> Payload:
        """See `TaskRegistry.payload`."""
        return self._asked[task.id].work.for_device()

    def set_state(self, task: TaskRecord, state: str, now_us: int, *, stored: bool) -> None:
        """See `TaskRegistry.set_state`."""
        super().set_state(task, state, now_us, stored=stored)
        if state == "executing":
            asked = self._asked[task.id]
            asked.recorder.record(QuantumStarted(work=asked.work.id, device=task.device))

    def end_task(self, task: TaskRecord, state: str, reason: str) -> None:
        """A task is over; what cannot be recorded has failed."""
        asked = self._asked.pop(task.id)
        recorder, work, device = asked.recorder, asked.work.id, task.device
        try:
            if state == "done":
                kept = recorder.keep(task.result)
                recorder.record(
                    QuantumEnded(work=work, device=device, state=state, result=kept, calibration=task.calibration),
                    durable=True,
                )
                began_us = task.executing_us
                device_s = None if began_us is None else (self._clock.now_us() - began_us) / 1e6
                task.result = executed(task.result, task.calibration, device_s)
            elif state == "cancelled":
                recorder.record(QuantumEnded(work=work, device=device, state=state))
                asked.failure = QuantumFailed(f"QPU {device}: the task was cancelled: {reason}", job=asked.work.job)
            else:
                asked.failure = QuantumFailed(reason, job=asked.work.job)
                error = str(asked.failure)
                recorder.record(QuantumEnded(work=work, device=device, state=state, error=error))
        except Exception as error:
            asked.failure = error
        super().end_task(task, state, reason)

    def who_waits(self, core: QueueCore) -> list[str]:
        """See `InProcessBroker.who_waits`."""
        waiting = [session for session in self.sessions.values() if session.state == "waiting"]
        lines = [f"session {session.id} is not open yet" for session in waiting]
        for task in self.tasks.values():
            job = self._asked[task.id].work.job
            where = f"in session {task.session}" if task.session is not None else "outside any session"
            state = core.state(task.id) if core.knows(task.id) else "lost: its queue does not know it"
            lines.append(f"job {job} waits for quantum task {task.name} {where}, which is {state}")
        return lines
