"""What callers may know of devices and queues, and what administrators do with devices.

That includes the comparison of a vendor's accounting with ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from qloom.broker.api.tasks import TaskApi
from qloom.broker.dispatcher import Dispatcher
from qloom.broker.monitor import DeviceMonitor
from qloom.broker.problems import NotFound
from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.events import SharesChanged
from qloom.broker.queue.lines import DeviceSpec, shares_for
from qloom.broker.registry import TaskRegistry
from qloom.broker.requests import Caller
from qloom.broker.store.database import Database
from qloom.broker.store.session_store import DeviceSettings
from qloom.broker.store.task_store import View
from qloom.device import Description, Device
from qloom.errors import InputError, Refused

NOT_LISTED = "the vendor does not list it"
TOLERANCE_S, TOLERANCE = 0.01, 0.01


class DeviceApi:
    """Devices and their queues, for everybody; drains, shares and accounting, for administrators."""

    def __init__(
        self,
        devices: Mapping[str, Device],
        specs: Mapping[str, DeviceSpec],
        promised_wait_s: Mapping[str, float],  # what the site has promised, by device
        core: QueueCore,
        dispatcher: Dispatcher,
        registry: TaskRegistry,
        monitor: DeviceMonitor,
        settings: DeviceSettings,
        database: Database,
        tasks: TaskApi,
    ) -> None:
        self._devices, self._specs, self._promised_wait_s = devices, specs, promised_wait_s
        self._core, self._dispatcher, self._registry, self._monitor = core, dispatcher, registry, monitor
        self._settings, self._database, self._tasks = settings, database, tasks

    def views(self) -> list[View]:
        """All devices, as everybody may see them."""
        return [self.view(name) for name in self._devices]

    def descriptions(self) -> list[Description]:
        """What all devices say of themselves."""
        return [device.description for device in self._devices.values()]

    def view(self, name: str) -> View:
        """What a device is and how it stands."""
        self._require(name)
        up, spec = self._core.is_up(name), self._specs[name]
        return {
            **asdict(self._devices[name].description),
            "state": self._monitor.states[name],
            "calibration": self._monitor.calibrations[name],
            "drained": self._monitor.drained[name],
            "up": up,
            "held": self._core.owner(name) is not None,  # all of it, by one session
            "policy": spec.policy,
            "shares": self._core.shares(name),
            "longest_s": spec.longest_s,
            "promised_wait_s": self._core.promised_wait_s(name),
            "expected_wait_s": self._core.expected_wait_s(name) if up else None,
        }

    def queue(self, who: Caller) -> View:
        """How much waits where, and where the caller's tasks are; nothing of anybody else's."""
        devices: dict[str, dict[str, Any]] = {
            name: {"queued": 0, "on_device": 0, "sessions_open": 0, "sessions_waiting": 0} for name in self._devices
        }
        mine: list[View] = []
        ahead_s = dict.fromkeys(devices, 0.0)
        for task in self._registry.tasks.values():
            counts = devices[task.device]
            queued = task.state == "queued"
            position = counts["queued"] + counts["on_device"]
            if task.project in who.projects:
                wait_s = ahead_s[task.device] / self._specs[task.device].lanes if queued else 0.0
                view = self._tasks.as_seen(who, task.view())
                mine.append({**view, "position": position if queued else 0, "expected_wait_s": wait_s})
            ahead_s[task.device] += task.expected_s
            counts["queued" if queued else "on_device"] += 1
        for session in self._registry.sessions.values():
            devices[session.device]["sessions_open" if session.state == "open" else "sessions_waiting"] += 1
        return {"devices": [{"device": name, **counts} for name, counts in devices.items()], "mine": mine}

    # For administrators

    async def drain(self, who: Caller, name: str, drained: bool) -> View:
        """Start nothing new on a device, or start again; what runs there is finished."""
        who.require_admin()
        self._require(name)
        await self._monitor.set_drained(name, drained)
        await self._database.durable()
        return self.view(name)

    async def set_shares(self, who: Caller, name: str, shares: int) -> View:
        """Offer another number of vQPUs: more at once, fewer as sessions end."""
        who.require_admin()
        self._require(name)
        if not 1 <= shares <= 10_000:
            raise InputError(f"a device has at least 1 share and at most 10000, not {shares}")
        promised_s = self._promised_wait_s.get(name)
        if promised_s is not None and shares > (most := shares_for(self._specs[name], promised_s)):
            raise Refused(f"QPU {name} promises a wait of at most {promised_s:g} s, which allows {most} shares")
        self._settings.set_shares(name, shares)
        self._dispatcher.handle(SharesChanged(name, shares))
        await self._database.durable()
        return self.view(name)

    async def reconcile(self, who: Caller, name: str | None = None) -> list[View]:
        """Where the vendors' accounting and ours differ."""
        who.require_admin()
        if name is not None:
            self._require(name)
        rows: list[View] = []
        for device in [self._devices[name]] if name is not None else self._devices.values():
            rows += accounting_differences(self._database, device.description, await device.tasks())
        return rows

    def _require(self, name: str) -> None:
        if name not in self._devices:
            raise NotFound(f"no QPU is called {name!r}", hint=f"there is: {', '.join(self._devices)}")


def accounting_differences(
    database: Database, description: Description, vendor: dict[str, float]
) -> list[dict[str, Any]]:
    """One row per difference: `vendor` is billed seconds by task id, as far as the vendor reports them.

    An emulated device forgets its books with each restart, and some vendors show none: what such a device does not
    list means nothing.
    """
    device = description.name
    rows: list[View] = []
    known: dict[str, None] = {}
    ours = database.rows("SELECT * FROM handovers WHERE device = ? ORDER BY began_us, token", device)
    for row in ours:
        id, billed_s = row["device_id"], row["billed_s"]
        if id is not None:
            known[id] = None
        theirs_s = vendor.get(id) if id is not None else None
        problem = _problem(row["outcome"], id, row["ended_us"], billed_s, theirs_s)
        if problem == NOT_LISTED and (description.emulated or not description.tells_billed_s):
            continue
        if problem:
            seconds = {"ours_s": billed_s, "vendor_s": theirs_s}
            rows.append({"device": device, "task": row["task"], "device_id": id, "problem": problem, **seconds})
    for id, theirs_s in vendor.items():
        if id not in known:
            problem = "the vendor bills a task that this broker does not know"
            rows.append(
                {
                    "device": device,
                    "task": None,
                    "device_id": id,
                    "problem": problem,
                    "ours_s": None,
                    "vendor_s": theirs_s,
                }
            )
    return rows


def _problem(
    outcome: str | None, id: str | None, ended_us: int | None, ours_s: float | None, theirs_s: float | None
) -> str:
    if outcome == "uncertain":
        return "the device could not say whether it was given this task: it may have run"
    if id is None or ended_us is None or outcome == "unknown":
        return ""  # never handed over, or still there
    if theirs_s is None:
        return NOT_LISTED
    if abs((ours_s or 0.0) - theirs_s) > max(TOLERANCE_S, TOLERANCE * theirs_s):
        return "billed seconds differ"
    return ""
