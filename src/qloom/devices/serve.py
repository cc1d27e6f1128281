"""The other end of `process.py`: serves one device over standard input and output, in whatever interpreter.

Only the standard library and this package are needed. Ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from qloom.aio import TaskScope
from qloom.device import Device, Status
from qloom.devices.lend import LONGEST, attached_bytes, frame
from qloom.errors import InputError, QloomError
from qloom.model import JsonText, json_text
from qloom.payloads.wire import payload_under

SLICE_S = 20.0  # `wait` and `result` answer at least so often, so that waiting is not taken for hanging

DeviceCall = Callable[[str], Coroutine[Any, Any, Any]]  # one that is given the id of a task


class Server:
    """One device, many calls at once."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._device: Device | None = None
        self._tasks = TaskScope()
        self._going: dict[tuple[str, str], asyncio.Task[Any]] = {}

    async def call(self, request: dict[str, Any], attached: JsonText | None) -> None:
        """Answer one request."""
        head: dict[str, Any] = {"n": request.get("n")}
        try:
            answer = await self._do(request["method"], request["params"], attached)
            sent = frame(head, answer) if isinstance(answer, JsonText) else frame({**head, "answer": answer})
        except QloomError as error:
            said = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
            sent = frame({**head, "error": said})
        except Exception as error:
            said = {"type": "QuantumFailed", "message": f"{type(error).__name__} in the device's process"}
            sent = frame({**head, "error": said})
        self._write(sent)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._out, data) :]

    async def _do(self, method: str, params: dict[str, Any], attached: JsonText | None) -> Any:
        if method == "open":
            from qloom.devices.factory import make_device

            self._device = make_device({**params["config"], "in_process": True})
            return dataclasses.asdict(self._device.description)
        if self._device is None:
            raise InputError("the device is not open")
        match method:
            case "start":
                return await self._device.start(params["token"], payload_under(params["payload"], attached or "null"))
            case "wait":
                return await self._slice(method, params["id"], self._device.wait)
            case "find":
                return await self._device.find(params["token"])
            case "result":
                return await self._slice(method, params["id"], self._device.result)
            case "stop":
                return await self._device.stop(params["id"])
            case "state":
                return await self._device.state()
            case "calibration":
                return await self._device.calibration()
            case "tasks":
                return await self._device.tasks()
            case "close":
                return await self._device.close()
        raise InputError(f"a device has no {method!r}")

    async def _slice(self, method: str, id: str, call: DeviceCall) -> dict[str, Any] | JsonText:
        """Wait for at most `SLICE_S`. If that was too short, the device goes on, and the next call picks it up."""
        going = self._going.get((method, id))
        if going is None:
            going = self._going[method, id] = self._tasks.start(call(id))
        done, _ = await asyncio.wait([going], timeout=SLICE_S)
        if not done:
            return {"over": False}
        self._going.pop((method, id), None)
        answer = going.result()
        if method == "result":  # passed on unread
            return json_text(answer)
        return {"over": True, "answer": dataclasses.asdict(answer) if isinstance(answer, Status) else answer}

    async def run(self) -> None:
        """Answer requests until standard input ends."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LONGEST)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            request = json.loads(line)
            count = attached_bytes(request)
            attached = None if count is None else JsonText(await reader.readexactly(count), "utf-8")
            self._tasks.spawn(self.call(request, attached))
        os._exit(0)  # a call of a vendor's library may hang: nobody waits for it


def main() -> None:
    """What libraries print must not reach the protocol: standard output becomes standard error."""
    out = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(Server(out).run())


if __name__ == "__main__":
    main()
