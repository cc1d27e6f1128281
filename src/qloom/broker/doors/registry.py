"""The doors by name: qloom's own, and those of other packages (entry points of the group `qloom.doors`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qloom.plugins import Registry

if TYPE_CHECKING:
    from qloom.broker.doors.door import Door

DOORS: Registry[type[Door]] = Registry(
    "qloom.doors",
    "door",
    {"dwave": "qloom.broker.doors.dwave:DwaveDoor", "iqm": "qloom.broker.doors.iqm:IqmDoor"},
    expected="a class of doors",
    check=callable,
)
