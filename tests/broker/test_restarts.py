"""Random work, random crashes: nothing is lost, and nothing runs twice unless the device never had it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import uuid
from operator import attrgetter

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as some

from qloom.broker.queue.lines import DeviceSpec
from qloom.broker.store.database import Database
from qloom.broker.store.schema import integrity
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
            session = (await self.ask("sessions.open", "q", QpuHold.SHARE, key=f"s{self.body}"))["id"]
        task = (await self.ask("tasks.submit", order(self.body, self.seconds, key=f"k{self.body}", session=session)))[
            "id"
        ]
        self.place.told[task] = ""
        if self.cancels:
            await self.ask("tasks.cancel", task)
        self.answers.append(await self.ask("tasks.wait", task))
        self.place.told[task] = self.answers[-1]["state"]
        if session is not None:
            await self.ask("sessions.close", session)

    async def ask(self, call: str, *args, **more):
        while True:
            broker = await self.place.up()
            work = asyncio.ensure_future(attrgetter(call)(broker)(ANN, *args, **more))
            down = asyncio.ensure_future(self.place.down.wait())
            await asyncio.wait([work, down], return_when=asyncio.FIRST_COMPLETED)
            down.cancel()
            if work.done() and not self.place.down.is_set():
                return work.result()
            work.cancel()
            await asyncio.wait([work])


class SlowDatabase(Database):
    """A disk that takes its time, so that a crash can come between staging and committing."""

    def __init__(self, path, dice: random.Random) -> None:
        super().__init__(path)
        self.dice, self.dead = dice, False
        self._db.execute("PRAGMA synchronous = OFF")  # no machine dies here, and the disk is slow

    def _plan_flush(self) -> None:
        if not self._flush_planned and not self._failing:
            self._flush_planned = True
            asyncio.get_running_loop().call_later(self.dice.choice([0.0, 0.0, 0.02, 0.07]), self.flush)

    def flush(self) -> None:
        if not self.dead:
            super().flush()


class Place:
    """A broker that is killed and started again."""

    def __init__(self, path, clock, vendor, spec, dice, **device) -> None:
        self.path, self.clock, self.vendor, self.spec, self.device = path, clock, vendor, spec, device
        self.dice = dice
        self.ready = asyncio.Event()
        self.down = asyncio.Event()
        self.told: dict[str, str] = {}  # task -> the end that its client knows of, if any
        self.executing: set[tuple[str, int]] = set()  # task and attempt that were told to execute

    def observe(self, event: dict) -> None:
        if event["event"] == "task" and event["state"] == "executing":
            self.executing.add((event["id"], event["attempts"]))

    def require_what_was_told(self, store: Database) -> None:
        """Whatever anybody was told before the crash is in the store."""
        for task, state in self.told.items():
            row = store.row("SELECT state FROM tasks WHERE id = ?", task)
            assert row is not None, "a task was accepted before it was durable"
            assert state in ("", row["state"]), "an end was told before it was durable"
        for task, attempt in self.executing:
            row = store.row("SELECT device_id FROM handovers WHERE token = ?", f"{task}-{attempt}")
            assert row["device_id"] is not None, "a task executes, and its id on the device is not known"

    async def start(self) -> None:
        store = SlowDatabase(self.path, self.dice)
        self.require_what_was_told(store)
        device = FakeDevice(self.vendor, lanes=self.spec.lanes, start_s=0.2, **self.device)
        self.broker = broker_on([device], store, self.clock, [self.spec])
        self.broker.feed.observe = self.observe
        await self.broker.start()
        self.down = asyncio.Event()
        self.ready.set()

    async def up(self):
        await self.ready.wait()
        return self.broker

    async def kill(self) -> None:
        self.ready.clear()
        self.down.set()
        for task in self.broker.registry.tasks.values():  # as anybody could have seen it
            if task.state == "executing" and not task.over:
                self.executing.add((task.id, task.attempts))
        self.broker.database.dead = True
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
        place = Place(path, clock, vendor, spec, dice, cannot_tell=cannot_tell)
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
                assert json.loads(answer["result"]) == {"echo": client.body}
            elif answer["state"] == "cancelled":
                assert client.cancels
            else:
                excuse = cannot_tell and "cannot say whether" in answer["reason"]
                assert not excuse or (answer["id"], answer["attempts"]) not in place.executing
                assert answer["state"] == "failed"
                assert excuse or (fault_rate and answer["attempts"] == 4), answer
            assert vendor.runs.get(client.body, 0) <= 1
            assert answer["state"] != "done" or vendor.runs[client.body] == 1
        assert place.broker.registry.tasks == {}
        assert place.broker.registry.sessions == {}
        assert place.broker.core.is_idle()
        await place.broker.close()

    try:
        run_virtual(main)
    except QloomError as error:
        raise AssertionError(str(error)) from error
    assert integrity(path) == []


def test_a_task_does_not_execute_before_its_id_on_the_device_is_durable(tmp_path):
    async def main(clock):
        broker = broker_on([FakeDevice(Vendor(clock))], tmp_path / "s.db", clock)
        await broker.start()
        task = await broker.tasks.submit(ANN, order(seconds=1.0))
        seen = []

        def look(writes, commit=broker.database._commit):
            if any("SET device_id" in sql for _, sql, _ in writes):
                seen.append(broker.tasks.status(ANN, task["id"])["state"])
            commit(writes)

        broker.database._commit = look
        assert (await broker.tasks.wait_begun(ANN, task["id"]))["state"] == "executing"
        assert seen == ["preparing"]
        assert (await broker.tasks.wait(ANN, task["id"]))["state"] == "done"
        await broker.close()

    run_virtual(main)
