"""One task through one device: hand it over exactly once, wait, fetch the answer.

The token was made durable before the device sees it, and the device's id before the task counts as executing. When
it is unknown whether a device was given a task, the device is asked; only if it says no is the task run again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from qloom.broker.records import TaskRecord
from qloom.broker.registry import TaskRegistry
from qloom.device import Device, Status
from qloom.errors import CannotTell, InputError, QuantumFailed, UnknownTask
from qloom.world import Clock

LOG = logging.getLogger("qloom.broker")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 30.0
RESULT_TRIES = 6
T = TypeVar("T")


@dataclass(slots=True)
class DeviceOutcome:
    """How an attempt on a device ended."""

    ok: bool
    fault: bool = False  # the device's, so that it may be tried again
    unknown: bool = False  # the device says that it was never given this task
    uncertain: bool = False  # nobody can say whether it ran
    billed_s: float | None = None
    error: str = ""
    result: Any = None
    calibration: str | None = None  # of the device, as the task was executed

    @property
    def word(self) -> str:
        """As the store keeps it."""
        if self.uncertain:
            return "uncertain"
        return "done" if self.ok else "unknown" if self.unknown else "failed"


class HandoverLog(Protocol):
    """Where the progress of a task on its device is written down: the dispatcher."""

    registry: TaskRegistry
    clock: Clock

    def hand_over(self, task: TaskRecord, device_id: str, state: str) -> None:
        """The device has taken the task; once this is durable, the task counts as `state`."""

    def advance(self, task: TaskRecord, state: str) -> None:
        """The device has moved the task on."""

    def release_device(self, task: TaskRecord) -> None:
        """The device is done with the task: another can start there while the answer is fetched."""


async def run_on_device(task: TaskRecord, device: Device, log: HandoverLog) -> DeviceOutcome:
    """Run a task that was started to its end, even if another run of the broker handed it over."""
    try:
        if task.device_id is None:
            given = await (_find(task, device, log) if task.reattached else _hand_over(task, device, log))
            if isinstance(given, DeviceOutcome):
                return given
            first = await _first_status(task, given, device, log)
            log.hand_over(task, given, _state(device, first))
            return await _follow(task, device, log, first)
        return await _follow(task, device, log, Status("preparing"))
    except CannotTell as error:
        reason = (
            f"QPU {device.description.name} cannot say whether it was given this task, so it may have run: {error}"
        )
        return DeviceOutcome(False, uncertain=True, error=reason)


async def _hand_over(task: TaskRecord, device: Device, log: HandoverLog) -> str | DeviceOutcome:
    await log.registry.durable(task)
    if task.stop_wanted:
        return DeviceOutcome(False, billed_s=0.0)
    try:
        return await device.start(task.token or "", log.registry.payload(task))
    except InputError as error:
        return DeviceOutcome(False, billed_s=0.0, error=error.message)
    except Exception as error:  # it may have arrived all the same
        LOG.warning("QPU %s, task %s: handing over failed: %s", device.description.name, task.id, _said(error))
        found = await _find(task, device, log)
        return found if isinstance(found, str) else DeviceOutcome(False, fault=True, billed_s=0.0, error=_said(error))


async def _find(task: TaskRecord, device: Device, log: HandoverLog) -> str | DeviceOutcome:
    """Whether the device was given this task."""
    found = await _retry(task, device, log, device.find, task.token or "")
    if found is not None:
        return str(found)
    return DeviceOutcome(False, fault=True, unknown=True, billed_s=0.0, error="the device does not have it")


async def _first_status(task: TaskRecord, id: str, device: Device, log: HandoverLog) -> Status:
    """How a task stands right after the handover: one that waits on its device must not count as executing.

    A vendor's machine is not asked: what it has just taken waits in its queue.
    """
    if not device.description.emulated:
        return Status("vendor_queued")
    try:
        return await _retry(task, device, log, device.wait, id)
    except UnknownTask:
        return Status("vendor_queued")  # to be found out by who waits for it


def _state(device: Device, status: Status) -> str:
    """A device's word as the queue takes it: an emulated one that sets a task up works on it."""
    if status.state == "preparing" and not device.description.emulated:
        return "preparing"
    return "vendor_queued" if status.state == "vendor_queued" else "executing"


async def _follow(task: TaskRecord, device: Device, log: HandoverLog, first: Status) -> DeviceOutcome:
    id = task.device_id or ""
    if task.stop_wanted:
        await stop_on_device(task, device, log)
    last, pause_s = first, FIRST_PAUSE_S
    status: Status = first
    while True:
        try:
            if status is not first or first.state not in ("done", "failed", "cancelled"):
                status = await _retry(task, device, log, device.wait, id)
        except UnknownTask as error:
            return DeviceOutcome(False, fault=True, unknown=True, billed_s=0.0, error=error.message)
        if status.state == "done":
            if not device.description.emulated:  # an emulated one answers at once
                log.release_device(task)
            return await _fetch(task, device, log, status)
        if status.state in ("failed", "cancelled"):
            reason = status.error or ("the device cancelled it" if status.state == "cancelled" else "")
            return DeviceOutcome(False, fault=status.fault, billed_s=status.billed_s, error=reason)
        if status == last:  # a device that answers at once must not keep us busy
            await log.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)
            continue
        last, pause_s = status, FIRST_PAUSE_S
        await log.registry.durable(task)  # the device's id, before the task counts as anything more
        log.advance(task, _state(device, status))


async def _fetch(task: TaskRecord, device: Device, log: HandoverLog, status: Status) -> DeviceOutcome:
    id = task.device_id or ""
    try:
        answer = await _retry(task, device, log, device.result, id, tries=RESULT_TRIES)
        encoded = log.registry.encode(answer)
        return DeviceOutcome(True, billed_s=status.billed_s, result=encoded, calibration=status.calibration)
    except Exception as error:  # it ran and will be billed: running it again is for its owner to decide
        return DeviceOutcome(False, billed_s=status.billed_s, error=f"its result cannot be read: {_said(error)}")


async def stop_on_device(task: TaskRecord, device: Device, log: HandoverLog) -> None:
    """Take a task back from its device; `Device.wait` then reports its end."""
    try:
        await _retry(task, device, log, device.stop, task.device_id or "", tries=RESULT_TRIES)
    except Exception as error:
        LOG.error("QPU %s: task %s cannot be stopped: %s", device.description.name, task.id, _said(error))


async def _retry(
    task: TaskRecord,
    device: Device,
    log: HandoverLog,
    call: Callable[[str], Coroutine[Any, Any, T]],
    name: str,  # the token or the device's id of the task
    tries: int | None = None,
) -> T:
    """Call until there is an answer: a device that cannot be reached has forgotten nothing."""
    pause_s, attempt = FIRST_PAUSE_S, 0
    while True:
        try:
            return await call(name)
        except (CannotTell, UnknownTask):
            raise
        except Exception as error:
            attempt += 1
            if attempt in (1, tries):
                what, qpu = getattr(call, "__name__", "call"), device.description.name
                LOG.warning("QPU %s, task %s: %s: %s", qpu, task.id, what, _said(error))
            if attempt == tries:
                raise
        await log.clock.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _said(error: BaseException) -> str:
    if isinstance(error, QuantumFailed | InputError):
        return error.message
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
