"""Random work, random crashes: nothing is lost, and nothing runs twice unless the device never had it."""

from __future__ import annotations

import asyncio
import os
import random
import uuid

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as some

from qloom.broker.promise import DeviceSpec
from qloom.broker.store import Store, integrity
from qloom.errors import QloomError
from qloom.model import QpuHold
from tests.broker.fakes import ANN, FakeDevice, Vendor, broker_on, crash, order, run_virtual

SETTINGS = settings(
    max_examples=int(os.environ.get("QLOOM_EXAMPLES", "300")) // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)


class Client:
    """Asks until it is answered, with the same key, whatever happens to the broker."""

    def __init__(self, place, body: int, seconds: float, pause_s: float, session: bool) -> None:
        self.place, self.body, self.seconds, self.pause_s, self.wants_session = place, body, seconds, pause_s, session
        self.cancels = False
        self.answers: list[dict] = []

    async def run(self) -> None:
        await self.place.clock.sleep(self.pause_s)
        session = None
        if self.wants_session:
            session = (await self.ask("open_session", "q", QpuHold.SHARE, key=f"s{self.body}"))["id"]
        task = (await self.ask("submit", order(self.body, self.seconds, key=f"k{self.body}", session=session)))["id"]
        if self.cancels:
            await self.ask("cancel", task)
        self.answers.append(await self.ask("wait", task))
        if session is not None:
            await self.ask("close_session", session)

    async def ask(self, call: str, *args, **more):
        while True:
            broker = await self.place.up()
            work = asyncio.ensure_future(getattr(broker, call)(ANN, *args, **more))
            down = asyncio.ensure_future(self.place.down.wait())
            await asyncio.wait([work, down], return_when=asyncio.FIRST_COMPLETED)
            down.cancel()
            if work.done() and not self.place.down.is_set():
                return work.result()
            work.cancel()
            await asyncio.wait([work])


class Place:
    """A broker that is killed and started again."""

    def __init__(self, path, clock, vendor, spec, **device) -> None:
        self.path, self.clock, self.vendor, self.spec, self.device = path, clock, vendor, spec, device
        self.ready = asyncio.Event()
        self.down = asyncio.Event()

    async def start(self) -> None:
        store = Store(self.path)
        store._db.execute("PRAGMA synchronous = OFF")  # no machine dies here, and the disk is slow
        device = FakeDevice(self.vendor, lanes=self.spec.lanes, start_s=0.2, **self.device)
        self.broker = broker_on([device], store, self.clock, [self.spec])
        await self.broker.start()
        self.down = asyncio.Event()
        self.ready.set()

    async def up(self):
        await self.ready.wait()
        return self.broker

    async def kill(self) -> None:
        self.ready.clear()
        self.down.set()
        await crash(self.broker)


@SETTINGS
@given(
    seed=some.integers(0, 10**6),
    clients=some.integers(1, 8),
    crashes=some.integers(0, 5),
    lanes=some.integers(1, 2),
    fault_rate=some.sampled_from([0.0, 0.3]),
    cannot_tell=some.booleans(),
)
def test_nothing_is_lost_and_nothing_runs_twice(tmp_path, seed, clients, crashes, lanes, fault_rate, cannot_tell):
    note(f"seed {seed}")
    path = tmp_path / f"{uuid.uuid4().hex}.db"
    dice = random.Random(seed)

    async def main(clock):
        vendor = Vendor(clock, random.Random(seed), fault_rate=fault_rate, strict=True)
        spec = DeviceSpec("q", shares=2, lanes=lanes, retries=3)
        place = Place(path, clock, vendor, spec, cannot_tell=cannot_tell)
        await place.start()
        everybody = []
        for body in range(clients):
            times = dice.choice([0.0, 0.1, 2.0]), dice.choice([0.0, 0.15, 1.0])
            everybody.append(Client(place, body, *times, session=dice.random() < 0.4))
            everybody[-1].cancels = dice.random() < 0.15
        work = [asyncio.ensure_future(client.run()) for client in everybody]
        for _ in range(crashes):
            await clock.sleep(dice.choice([0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 1.0]))
            for _ in range(dice.randrange(12)):
                await asyncio.sleep(0)
            await place.kill()
            await clock.sleep(dice.choice([0.0, 0.1, 5.0]))
            await place.start()
        await asyncio.gather(*work)
        for client in everybody:
            [answer] = client.answers
            if answer["state"] == "done":
                assert answer["result"] == {"echo": client.body}
            elif answer["state"] == "cancelled":
                assert client.cancels
            else:
                excuse = cannot_tell and "cannot say whether" in answer["reason"]
                assert answer["state"] == "failed"
                assert excuse or (fault_rate and answer["attempts"] == 4), answer
            assert vendor.runs.get(client.body, 0) <= 1
            assert answer["state"] != "done" or vendor.runs[client.body] == 1
        assert place.broker.live == {}
        assert place.broker.sessions == {}
        assert place.broker.core.is_idle()
        await place.broker.close()

    try:
        run_virtual(main)
    except QloomError as error:
        raise AssertionError(str(error)) from error
    assert integrity(path) == []
