"""A device in a process and environment of its own: vendors' packages cannot be installed together.

Its interpreter needs nothing of qloom: the few modules that it runs are lent to it. Every call has a time limit; a
process that hangs or dies is started again, and the call repeated a few times. A `start` is never just repeated: the
new process is first asked whether it knows the token.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qloom.device import Device, Status
from qloom.devices.child import Child, ChildDied
from qloom.devices.lend import FEW_ARENAS, command
from qloom.devices.serve import SLICE_S
from qloom.errors import InputError, Unreachable
from qloom.model import JsonText, Payload
from qloom.payloads.wire import head_of


class ProcessDevice:
    """The port of a device, carried over a pipe. `twin` answers what needs no device: check, seconds, set-up key."""

    def __init__(
        self,
        twin: Device,
        config: Mapping[str, Any],
        *,
        python: str | None = None,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        call_s: float = 120.0,
        tries: int = 3,
        pause_s: float = 0.5,
        memory_mib: int | None = None,
    ) -> None:
        interpreter = shutil.which(python) if python else sys.executable
        if interpreter is None:
            raise InputError(f"{python} is no Python that can be run", hint="give the path of a venv's bin/python")
        self._twin = twin
        self.description, self.outages_s = twin.description, twin.outages_s
        self._call_s = call_s
        self._tries = tries
        self._pause_s = pause_s
        self._closed = False
        self.child = Child(
            command(interpreter, "qloom.devices.serve", memory_mib),
            what=f"the process of {self.description.name}",
            environment={**FEW_ARENAS, **(environment or {})},
            log=log,
            opening=("open", {"config": dict(config)}),
            start_s=call_s,
        )

    def check(self, payload: Payload) -> None:
        """See `Device.check`."""
        self._twin.check(payload)

    def seconds(self, payload: Payload) -> float:
        """See `Device.seconds`."""
        return self._twin.seconds(payload)

    def set_up_key(self, payload: Payload) -> str | None:
        """See `Device.set_up_key`."""
        return self._twin.set_up_key(payload)

    async def start(self, token: str, payload: Payload) -> str:
        """See `Device.start`."""
        self.check(payload)
        params = {"token": token, "payload": head_of(payload)}
        for attempt in range(self._tries):
            if attempt > 0:
                known = await self.find(token)  # may raise `CannotTell`
                if known is not None:
                    return known
            try:
                return str(await self._once("start", params, attached=payload.text))
            except ChildDied as died:
                last = died
                await asyncio.sleep(self._pause_s * 2**attempt)
        raise Unreachable(last.message)

    async def find(self, token: str) -> str | None:
        """See `Device.find`."""
        id = await self._call("find", {"token": token})
        return None if id is None else str(id)

    async def wait(self, id: str) -> Status:
        """See `Device.wait`."""
        return Status(**await self._call_patiently("wait", id))

    async def result(self, id: str) -> Any:
        """See `Device.result`."""
        return await self._call_patiently("result", id)

    async def stop(self, id: str) -> None:
        """See `Device.stop`."""
        await self._call("stop", {"id": id})

    async def state(self) -> str:
        """See `Device.state`. A process that cannot be brought to answer is a device in error."""
        try:
            return str(await self._call("state", {}))
        except Unreachable:
            return "error"

    async def calibration(self) -> str | None:
        """See `Device.calibration`. That of a process that cannot be brought to answer is not known."""
        try:
            known = await self._call("calibration", {})
        except Unreachable:
            return None
        return None if known is None else str(known)

    async def tasks(self) -> dict[str, float]:
        """See `Device.tasks`."""
        return {str(id): float(seconds) for id, seconds in (await self._call("tasks", {})).items()}

    async def close(self) -> None:
        """See `Device.close`."""
        self._closed = True
        if self.child.pid is not None:
            try:
                await self.child.call("close", {}, min(self._call_s, 10.0))
            except ChildDied:
                pass
        await self.child.close()

    async def _once(
        self, method: str, params: dict[str, Any], limit_s: float | None = None, attached: str | None = None
    ) -> Any:
        if self._closed:
            raise Unreachable(f"{self.description.name} is closed")
        return await self.child.call(method, params, limit_s or self._call_s, attached)

    async def _call_patiently(self, method: str, id: str) -> Any:
        """A call that may take any time: the other end says every now and then that it is still at it."""
        while True:
            reply = await self._call(method, {"id": id}, self._call_s + SLICE_S)
            if isinstance(reply, JsonText):  # a result
                return reply
            if reply["over"]:
                return reply["answer"]

    async def _call(self, method: str, params: dict[str, Any], limit_s: float | None = None) -> Any:
        """A call that can be repeated."""
        for attempt in range(self._tries):
            try:
                return await self._once(method, params, limit_s)
            except ChildDied as died:
                last = died
                await asyncio.sleep(self._pause_s * 2**attempt)
        raise Unreachable(last.message)
