"""Where a task can run: what each device makes of its payload, and which one would have it first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.lines import DeviceSpec
from qloom.broker.queue.task import Place
from qloom.broker.requests import ANY_DEVICE, TaskRequest, stored_payload
from qloom.device import Device
from qloom.errors import InputError, PayloadError, QloomError


@dataclass(frozen=True)
class Placing:
    """The devices of a broker, as a task finds them."""

    devices: Mapping[str, Device]
    specs: Mapping[str, DeviceSpec]
    core: QueueCore

    def choose(self, request: TaskRequest, wanted: str | None, *, whole: bool) -> tuple[Place, tuple[Place, ...]]:
        """Where a task is to wait, and where else it may run; `wanted` is the only device, if there is one."""
        names = self._names(request, wanted)
        if len(names) == 1:
            return self._place(names[0], request, whole=whole), ()
        places, refusals = [], []
        for name in names:
            try:
                places.append(self._place(name, request, whole=whole))
            except PayloadError as error:
                if ANY_DEVICE not in request.devices and request.devices:
                    raise  # it was named, and cannot take this
                refusals.append(error)
        if not places:
            raise refusals[0]
        short = [place for place in places if self._admits(place)] or places
        short.sort(key=lambda place: (not self.core.is_up(place.device), self.core.expected_wait_s(place.device)))
        return short[0], tuple(short[1:]) if request.devices else ()

    def _names(self, request: TaskRequest, wanted: str | None) -> list[str]:
        if wanted is not None:
            self.core.is_up(wanted)  # raises if there is none
            return [wanted]
        if request.devices and ANY_DEVICE not in request.devices:
            for name in request.devices:
                self.core.is_up(name)
            return list(dict.fromkeys(request.devices))
        kind = request.payload.kind
        able = [name for name, device in self.devices.items() if kind in device.description.payloads]
        if not able:
            raise PayloadError(f"no QPU here takes a payload of kind {kind!r}", hint="see: qloom qpu list")
        return able

    def _admits(self, place: Place) -> bool:
        longest_s = self.specs[place.device].longest_s
        return longest_s is None or place.expected_s <= longest_s

    def _place(self, name: str, request: TaskRequest, *, whole: bool) -> Place:
        expected_s, set_up = _read(self.devices[name], request)
        limits = [request.time_limit_s, None if whole else self.specs[name].slowest_s]
        limit_s = min((limit for limit in limits if limit is not None), default=None)
        return Place(name, expected_s, limit_s, set_up)


def payload_text(request: TaskRequest) -> str:
    """A payload as the store keeps it; raises for what it cannot keep."""
    try:
        return stored_payload(request.payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadError(f"this payload cannot be stored ({type(error).__name__})") from None


def _read(device: Device, request: TaskRequest) -> tuple[float, str | None]:
    """How long a payload takes and its set-up key; raises for one that the device cannot take."""
    payload, name = request.payload, device.description.name
    if payload.kind not in device.description.payloads:
        taken = ", ".join(device.description.payloads)
        raise PayloadError(f"QPU {name} takes no payload of kind {payload.kind!r}", hint=f"it takes {taken}")
    try:
        device.check(payload)
        expected_s, set_up = float(device.seconds(payload)), device.set_up_key(payload)
    except QloomError:
        raise
    except Exception as error:  # whatever a strange payload does to its reader, it is not queued
        raise PayloadError(f"QPU {name} cannot read this payload ({type(error).__name__})") from None
    if not (math.isfinite(expected_s) and expected_s >= 0):
        raise PayloadError(f"this payload would take {expected_s} s")
    for what, value in (("max_wait_s", request.max_wait_s), ("time_limit_s", request.time_limit_s)):
        if value is not None and not 0 <= value < float("inf"):
            raise InputError(f"{what} must be a number of seconds, not {value}")
    return expected_s, set_up
