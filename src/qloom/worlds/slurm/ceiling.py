"""Ceilings on what a run may hold: they are called when so many seconds are used up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from qloom.aio import TaskScope
from qloom.device import FINAL, Device, Status
from qloom.errors import AllocationEnded
from qloom.model import Payload
from qloom.ports import Clock
from qloom.site import Slurm
from qloom.worlds.slurm.ends import RESUME


class Ceiling:
    """Adds up what is held, and calls `reached` at the moment when the most is reached."""

    def __init__(self, clock: Clock, most_s: float | None, used_s: float, reached: Callable[[], None]) -> None:
        self._clock = clock
        self._most_s = most_s
        self._used_s = used_s
        self._reached = reached
        self._held = 0.0
        self._since_us = clock.now_us()
        self._cancel: Callable[[], None] | None = None

    def change(self, by: float) -> None:
        """More, or less, is held from now on."""
        if self._most_s is None:
            return
        now_us = self._clock.now_us()
        self._used_s += self._held * (now_us - self._since_us) / 1e6
        self._held, self._since_us = max(0.0, self._held + by), now_us
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        if self._held > 0:
            self._cancel = self._clock.deadline(max(0.0, self._most_s - self._used_s) / self._held, self._reached)

    def close(self) -> None:
        """Forget the deadline."""
        if self._cancel is not None:
            self._cancel()


class Ceilings:
    """Those of one run, on node-hours and on QPU-seconds; `stop` is called when one of them is reached."""

    def __init__(
        self, clock: Clock, slurm: Slurm, used_node_s: float, used_qpu_s: float, stop: Callable[[], None]
    ) -> None:
        hours, qpu_s = slurm.most_node_hours, slurm.most_qpu_s
        most_node_s = None if hours is None else hours * 3600
        self.nodes = Ceiling(clock, most_node_s, used_node_s, lambda: self._reach(f"{hours:g} node-hours"))
        self.qpus = Ceiling(clock, qpu_s, used_qpu_s, lambda: self._reach(f"{qpu_s:g} QPU-seconds"))
        self._reached: str | None = None
        self._stop = stop
        self._scope = TaskScope()
        self._doing: list[asyncio.Task[Any]] = []

    def _reach(self, most: str) -> None:
        self._reached = f"the run has held its ceiling of {most}"
        self._stop()
        for doing in self._doing:
            doing.cancel()

    async def while_there_is_room(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Work that is ended where it stands when a ceiling is reached: the driver's own job ends with its work."""
        self.require_room()
        doing = self._scope.start(begin())
        self._doing.append(doing)
        caller = asyncio.current_task()
        try:
            return await doing
        except asyncio.CancelledError:
            error = self.error()
            if error is None or (caller is not None and caller.cancelling()):
                raise
            raise error from None
        finally:
            self._doing.remove(doing)

    def error(self) -> AllocationEnded | None:
        """Why the run cannot go on, if a ceiling is reached."""
        hint = f"raise it in [slurm] of the site; {RESUME}"
        return None if self._reached is None else AllocationEnded(self._reached, hint=hint)

    def require_room(self) -> None:
        """Refuse to go on under a ceiling that is reached."""
        if (error := self.error()) is not None:
            raise error

    def close(self) -> None:
        """Forget the deadlines."""
        self.nodes.close()
        self.qpus.close()


class CountedDevice:
    """A device whose executions count against a ceiling, unless their job `holds` it: then that counts."""

    def __init__(self, device: Device, ceilings: Ceilings, holds: Callable[[str], bool]) -> None:
        self.description, self.outages_s = device.description, device.outages_s
        self.check, self.seconds, self.set_up_key = device.check, device.seconds, device.set_up_key
        self.find, self.result, self.state = device.find, device.result, device.state
        self.tasks, self.close = device.tasks, device.close
        self._device = device
        self._ceilings = ceilings
        self._holds = holds
        self._counted: dict[str, float] = {}  # task that is not over -> QPUs that it counts for

    def is_executing(self) -> bool:
        """Whether the device has a task that is not over."""
        return bool(self._counted)

    async def start(self, token: str, payload: Payload) -> str:
        """Hand a task over, if there is room under the ceilings."""
        self._ceilings.require_room()
        id = await self._device.start(token, payload)
        qpus = self._counted[id] = 0.0 if self._holds(payload.options["job"]) else 1.0
        self._ceilings.qpus.change(qpus)
        return id

    async def wait(self, id: str) -> Status:
        """Wait for a task; one that is on the device when a ceiling is reached is stopped."""
        try:
            status: Status = await self._ceilings.while_there_is_room(lambda: self._device.wait(id))
        except AllocationEnded:
            await self.stop(id)
            raise
        if status.state in FINAL:
            self._uncount(id)
        return status

    async def stop(self, id: str) -> None:
        """End a task."""
        await self._device.stop(id)
        self._uncount(id)

    def _uncount(self, id: str) -> None:
        self._ceilings.qpus.change(-self._counted.pop(id, 0.0))
