"""A QPU that outlives the broker, and a broker on it in virtual time."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from qloom.broker.queue.lines import DeviceSpec
from qloom.broker.requests import Caller, TaskRequest
from qloom.broker.service import BrokerService
from qloom.broker.store.database import Database
from qloom.device import Description, Status
from qloom.errors import CannotTell, PayloadError, QuantumFailed, UnknownTask
from qloom.model import Payload
from qloom.worlds.virtual.loop import VirtualClock, VirtualLoop

ANN = Caller("ann", ("physics",))
BOB = Caller("bob", ("chemistry",))
ROOT = Caller("root", ("site",), admin=True)


@dataclass
class Vendor:
    """What the vendor has: it goes on while no broker is there."""

    clock: Any
    random: random.Random = field(default_factory=lambda: random.Random(0))
    ids: dict[str, str] = field(default_factory=dict)  # token -> id
    ends_us: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    stopped: dict[str, None] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    runs: dict[Any, int] = field(default_factory=dict)  # body -> how often it was run
    fault_rate: float = 0.0
    strict: bool = False  # whoever hands the same token over twice has two tasks
    faulty: dict[str, None] = field(default_factory=dict)


class FakeDevice:
    """A device in front of a vendor; a new one is made at every start of the broker."""

    def __init__(
        self,
        vendor: Vendor,
        name: str = "q",
        *,
        lanes: int = 1,
        cannot_tell: bool = False,
        start_s: float = 0.0,
        emulated: bool = True,
        state: str = "idle",
    ) -> None:
        self.vendor = vendor
        self.description = Description(name, "fake", 8, ("test",), lanes=lanes, emulated=emulated)
        self.cannot_tell = cannot_tell
        self.start_s = start_s
        self.now = state
        self.outages_s = ()
        self.told: dict[str, None] = {}  # tasks that `wait` has told of
        self.closed = asyncio.Event()

    def check(self, payload: Payload) -> None:
        if payload.value == "bad":
            raise PayloadError("this is bad")
        if payload.value == "crash":
            raise ZeroDivisionError

    def seconds(self, payload: Payload) -> float:
        return payload.seconds or 0.0

    def set_up_key(self, payload: Payload) -> str | None:
        return None

    async def start(self, token: str, payload: Payload) -> str:
        await self.vendor.clock.sleep(self.start_s / 2)
        vendor = self.vendor
        if token not in vendor.ids or vendor.strict:
            id = vendor.ids[token] = f"v{len(vendor.ends_us)}"
            vendor.seconds[id] = self.seconds(payload)
            vendor.ends_us[id] = vendor.clock.now_us() + round(vendor.seconds[id] * 1e6)
            vendor.answers[id] = {"echo": payload.value}
            if vendor.random.random() < vendor.fault_rate:
                vendor.faulty[id] = None
            else:
                vendor.runs[payload.value] = vendor.runs.get(payload.value, 0) + 1
        await self.vendor.clock.sleep(self.start_s / 2)
        if payload.value == "lost answer":
            raise ConnectionError("the line broke")
        return vendor.ids[token]

    async def find(self, token: str) -> str | None:
        if self.cannot_tell:
            raise CannotTell("no way to look")
        return self.vendor.ids.get(token)

    async def wait(self, id: str) -> Status:
        vendor = self.vendor
        if id not in vendor.ends_us:
            raise UnknownTask(f"no task {id}")
        if id not in self.told and vendor.ends_us[id] > vendor.clock.now_us() and id not in vendor.stopped:
            self.told[id] = None
            return Status("executing")
        while (left_us := vendor.ends_us[id] - vendor.clock.now_us()) > 0 and id not in vendor.stopped:
            await vendor.clock.sleep(min(left_us / 1e6, 0.5))
        if id in vendor.stopped:
            return Status("cancelled", billed_s=0.0)
        if id in vendor.faulty:
            return Status("failed", billed_s=0.0, error="it broke", fault=True)
        return Status("done", billed_s=vendor.seconds[id])

    async def result(self, id: str) -> Any:
        return self.vendor.answers[id]

    async def stop(self, id: str) -> None:
        if self.vendor.ends_us[id] > self.vendor.clock.now_us():
            self.vendor.stopped[id] = None

    async def state(self) -> str:
        if self.now == "broken":
            raise QuantumFailed("no answer")
        return self.now

    async def calibration(self) -> str | None:
        return None

    async def tasks(self) -> dict[str, float]:
        return {
            id: 0.0 if id in self.vendor.stopped or id in self.vendor.faulty else seconds
            for id, seconds in self.vendor.seconds.items()
        }

    async def close(self) -> None:
        self.closed.set()


def order(body: Any = 1, seconds: float = 1.0, **more: Any) -> TaskRequest:
    return TaskRequest(Payload("test", body, seconds=seconds), **more)


def run_virtual(main: Any) -> Any:
    """Run `main(clock)` in virtual time."""
    loop = VirtualLoop()
    return loop.run_until_complete(main(VirtualClock(loop)))


def broker_on(devices: list[Any], path: Any, clock: Any, specs: Any = None, **options: Any) -> BrokerService:
    names = [device.description for device in devices]
    specs = specs or [DeviceSpec(each.name, lanes=each.lanes) for each in names]
    database = path if isinstance(path, Database) else Database(path)
    return BrokerService(devices, specs, database, clock, **{"poll_s": 0, **options})


async def crash(broker: BrokerService) -> None:
    """As kill -9 does: nothing that is staged is written."""
    broker.database._writes, broker.database._thens = [], []
    await broker.close()
