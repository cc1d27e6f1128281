"""The real service with a device that lives in a directory: it goes on while no broker is there.

python -m tests.broker.service broker.toml
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from qloom.broker.config import read_config
from qloom.broker.serve import serve
from qloom.device import Description, Status
from qloom.errors import UnknownTask
from qloom.model import Payload


class DirectoryDevice:
    """Each task is a file, named by its token, made at once or not at all."""

    def __init__(self, values: Any) -> None:
        self.description = Description(values["name"], "annealer", 8, ("test",), lanes=values.get("lanes", 1))
        self.directory = Path(values["directory"])
        self.directory.mkdir(exist_ok=True)
        self.outages_s = ()
        self.told: dict[str, None] = {}  # tasks that `wait` has told of
        self.dies = values.get("dies")  # a file: while it is there, the process dies after handing over

    def check(self, payload: Payload) -> None:
        pass

    def seconds(self, payload: Payload) -> float:
        return payload.seconds or 0.0

    def set_up_key(self, payload: Payload) -> str | None:
        return None

    async def start(self, token: str, payload: Payload) -> str:
        path = self.directory / token
        if not path.exists():
            made = path.with_suffix(".new")
            made.write_text(json.dumps({"body": payload.value, "ends": time.time() + self.seconds(payload)}))
            made.rename(path)
        if self.dies is not None and Path(self.dies).exists():
            Path(self.dies).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return token

    async def find(self, token: str) -> str | None:
        return token if (self.directory / token).exists() else None

    async def wait(self, id: str) -> Status:
        try:
            task = json.loads((self.directory / id).read_text())
        except FileNotFoundError:
            raise UnknownTask(f"no {id}") from None
        left_s = task["ends"] - time.time()
        if left_s > 0 and id not in self.told:
            self.told[id] = None
            return Status("executing")
        if left_s > 0:
            await asyncio.sleep(left_s)
        return Status("done", billed_s=0.0, calibration=await self.calibration())

    async def result(self, id: str) -> Any:
        return {"echo": json.loads((self.directory / id).read_text())["body"]}

    async def stop(self, id: str) -> None:
        pass

    async def state(self) -> str:
        return "idle"

    async def calibration(self) -> str | None:
        path = self.directory.with_name("calibration")
        return path.read_text() if path.exists() else None

    async def tasks(self) -> dict[str, float]:
        return {path.name: 0.0 for path in self.directory.iterdir()}

    async def close(self) -> None:
        pass


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    serve(read_config(Path(sys.argv[1])), DirectoryDevice)
