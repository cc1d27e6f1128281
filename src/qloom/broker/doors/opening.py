"""Opens the doors that a config names, and starts the processes that translate for them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

from qloom.broker.config_parts import DoorPart, LimitsPart
from qloom.broker.doors.door import BrokerParts, Door
from qloom.broker.doors.registry import DOORS
from qloom.broker.doors.translating import PooledTranslations
from qloom.broker.service import BrokerService
from qloom.device import Description
from qloom.errors import InputError


def open_doors(
    parts: Mapping[str, DoorPart], devices: Sequence[Description]
) -> list[tuple[type[Door], list[Description]]]:
    """The doors that a config opens, each with its devices; raises `InputError` for one that cannot be opened."""
    known = {device.name: device for device in devices}
    opened = []
    for name, part in parts.items():
        door = DOORS.choose(name)
        for device in part.devices:
            if device not in known:
                raise InputError(f"doors.{name}: there is no device {device!r}", hint=f"there is: {', '.join(known)}")
            door.check_device(known[device])
        opened.append((door, [known[device] for device in dict.fromkeys(part.devices)]))
    return opened


@contextlib.asynccontextmanager
async def doors_of(
    parts: Mapping[str, DoorPart], limits: LimitsPart, broker: BrokerService
) -> AsyncIterator[list[Door]]:
    """The doors that a config opens; without any, no process is started."""
    opened = open_doors(parts, broker.devices.descriptions())
    if not opened:
        yield []
        return
    translations = PooledTranslations(limits.check_processes, limits.check_memory_mib, limits.check_cpu_s)
    given = BrokerParts(broker.tasks, broker.devices, translations, limits.max_bytes)
    try:
        await translations.start()
        yield [door(given, devices) for door, devices in opened]
    finally:
        await translations.close()
