"""A random schedule from one number: programs, strategies, a site, and what goes wrong while they run.

A job that was hit (its node lost, its QPU failed, its driver killed) is resumed from the journal, as a user would do.
A killed driver leaves what it held until the cluster reaps it and the broker's sessions expire: before or after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from qloom.broker import events
from qloom.broker.core import QueueCore
from qloom.broker.inprocess import InProcessBroker
from qloom.broker.state import KnownSession, KnownTask
from qloom.errors import AllocationEnded, QuantumFailed
from qloom.journal.file import Event
from qloom.journal.forecast import learn
from qloom.model import QuantumWork
from qloom.programs.load import Program
from qloom.runner import Plan, run_job
from qloom.site import Overheads, Qpu, Site
from qloom.strategies import STRATEGIES
from qloom.worlds.line import Line
from qloom.worlds.partitions import Partitions
from qloom.worlds.virtual.loop import VirtualClock
from qloom.worlds.virtual.world import VirtualDevice, VirtualWorld
from tests.simulation.harness import interpret
from tests.simulation.mortal import Driver, MortalLoop, OwnJournal

T = TypeVar("T")
DISASTERS = ("node lost", "QPU fault", "driver killed", "broker restarted")
SECONDS = (0.0, 0.1, 0.5, 1.0, 2.5, 7.0)
LIMIT_S = 1000.0  # of virtual time, far longer than any schedule takes
MOST_RESUMES = 50
MOST_STEPS = 40  # that a driver may take after it was told to die


class QpuBroke(QuantumFailed):
    """What a task sees whose QPU fails while it executes."""


@dataclass(frozen=True)
class Schedule:
    """Everything that a run depends on."""

    seed: int
    programs: list[list[tuple[Any, ...]]]
    strategies: list[str]
    runs: list[list[int]]  # the jobs that one driver has
    site: Site
    disasters: list[tuple[float, str, float]]  # when, what, and whom it hits (0 to 1)


@dataclass(frozen=True)
class Ended:
    """What came of it: the result of each job, the journal of each run, and how often each disaster hit somebody."""

    results: list[Any]
    journals: list[list[Event]]
    hits: dict[str, int]


def draw(seed: int) -> Schedule:
    """The schedule of a number."""
    rng = Random(seed)
    overhead = lambda: rng.choice([0.0, 0.01, 0.05, 0.3])  # noqa: E731
    site = Site(
        nodes=rng.choice([3, 3, 4]),
        qpus=rng.choice([(Qpu(shares=2),), (Qpu(shares=3, lanes=2),), (Qpu(name="a", shares=2), Qpu(name="b"))]),
        overheads=Overheads(
            tick_s=rng.choice([0.0, 0.0, 0.3, 1.0]),
            grant_s=overhead(),
            worker_start_s=overhead(),
            grow_s=overhead(),
            shrink_s=overhead(),
            release_s=overhead(),
            queue_call_s=overhead(),
        ),
    )
    count = rng.randint(1, 5)
    holds = ("", "+whole", "+share", "+task")
    each = rng.randint(1, count)
    runs = [list(range(first, min(first + each, count))) for first in range(0, count, each)]
    return Schedule(
        seed,
        [[_step(rng) for _ in range(rng.randint(1, 5))] for _ in range(count)],
        [rng.choice(list(STRATEGIES)) + rng.choice(holds) for _ in range(count)],
        runs,
        site,
        sorted((rng.uniform(0, 25), rng.choice(DISASTERS), rng.random()) for _ in range(rng.randint(1, 6))),
    )


def _step(rng: Random) -> tuple[Any, ...]:
    tasks = [(rng.choice(SECONDS), rng.choice([1, 1, 1, 2, 3])) for _ in range(rng.randint(1, 4))]
    quantum = [rng.choice(SECONDS) for _ in range(rng.randint(2, 3))]
    inner = [("classical", [(1.0, 1)]), ("quantum", quantum[0]), ("several", quantum)]
    return rng.choice(
        [
            ("classical", tasks),
            ("quantum", quantum[0]),
            ("overlap", tasks, quantum[0]),
            ("behind", tasks, quantum[0]),
            ("several", quantum),
            ("block", rng.sample(inner, rng.randint(1, 3))),
            ("speculate", tasks, quantum[0]),
        ]
    )


def run(schedule: Schedule) -> Ended:
    """Run it to its end, resuming what was hit; nothing may be left behind."""
    loop = MortalLoop()  # type: ignore[abstract]
    try:
        return loop.run_until_complete(Disasters(schedule, VirtualClock(loop)).run())
    finally:
        loop.close()


def _name(number: int) -> str:
    return f"j{number + 1}"


class Disasters:
    """A cluster and a broker that live on, and one driver after the other for each run."""

    def __init__(self, schedule: Schedule, clock: VirtualClock) -> None:
        self._schedule = schedule
        self._clock = clock
        self._rng = Random(schedule.seed)
        self._devices = [Fragile(device) for device in VirtualWorld(schedule.site, clock).devices]
        shares = {qpu.name: qpu.shares for qpu in schedule.site.qpus}
        overheads = schedule.site.overheads
        self._line = Line(Partitions(schedule.site.node_names, shares), clock, overheads.tick_s)
        self._broker = InProcessBroker(self._devices, clock, overheads.queue_call_s)
        self._drivers: list[Driver] = []  # those that live
        self._dead: list[Driver] = []
        self._clearing: list[asyncio.Task[None]] = []
        self._started = 0
        self._hits = dict.fromkeys(DISASTERS, 0)

    async def run(self) -> Ended:
        schedule = self._schedule
        self._clock.explain_with(lambda: [*self._line.who_waits(), *self._broker.who_waits()])
        self._clock.limit(LIMIT_S)
        for at_s, what, whom in schedule.disasters:
            asyncio.get_running_loop().call_later(at_s, self._strike, what, whom)
        try:
            journals = await asyncio.gather(*(self._run(numbers) for numbers in schedule.runs))
            await asyncio.gather(*self._clearing)
            await self._broker.close()
            assert self._line.partitions.all_free(), "a node or a QPU is still held"
            assert not self._line.partitions.waiting, "somebody still waits in line"
            assert self._broker.core.is_idle(), "the broker still has tasks or sessions"
        finally:
            for driver in self._dead:
                driver.bury()
        kept = {job: result for journal in journals for job, result in journal.done_jobs().items()}
        results = [kept[_name(number)] for number in range(len(schedule.programs))]
        return Ended(results, [journal.written for journal in journals], self._hits)

    async def _run(self, numbers: list[int]) -> OwnJournal:
        """Resume a run until all its jobs are done; returns its journal."""
        journal: OwnJournal | None = None
        for _ in range(MOST_RESUMES):
            self._started += 1
            driver = Driver(self._started, self._schedule.site, self._line, self._broker, self._clock)
            journal = OwnJournal(driver, self._clock, journal, 0 if journal is None else journal.cut(self._rng))
            done = journal.done_jobs()
            left = [number for number in numbers if _name(number) not in done]
            if not left:
                return journal
            main = driver.start(self._drive(driver, journal, left))
            self._drivers.append(driver)
            await asyncio.wait([main, driver.died], return_when=asyncio.FIRST_COMPLETED)
            self._drivers.remove(driver)
            if driver.is_dead:
                self._hits["driver killed"] += 1
                self._dead.append(driver)
                self._clearing += [asyncio.ensure_future(clear(driver)) for clear in (self._reap, self._expire)]
                await self._clock.sleep(self._rng.choice(SECONDS))
            else:
                assert driver.holds_nothing, "a driver has ended and holds something"
                await main
        raise AssertionError(f"jobs {numbers} were resumed {MOST_RESUMES} times and are not done")

    async def _drive(self, driver: Driver, journal: OwnJournal, numbers: list[int]) -> None:
        """What one driver does: all jobs that are not done."""
        past = list(journal.written)
        journal.record("resumed" if past else "run_started", durable=True, version=1)
        forecaster = learn(journal, [past])
        jobs = [
            run_job(self._plan(n), n, driver.world, driver.broker, journal, past=past, forecaster=forecaster)
            for n in numbers
        ]
        for ended in await asyncio.gather(*jobs, return_exceptions=True):
            if isinstance(ended, BaseException) and not isinstance(ended, AllocationEnded | QpuBroke):
                raise ended
        journal.record("run_ended", durable=True)

    def _plan(self, number: int) -> Plan:
        schedule = self._schedule
        program, parameters = Program("interpret", interpret), {"steps": schedule.programs[number]}
        return Plan(program, parameters, schedule.strategies[number], world="virtual", site=schedule.site)

    async def _reap(self, driver: Driver) -> None:
        await self._clock.sleep(self._rng.choice(SECONDS))
        driver.line.reap()

    async def _expire(self, driver: Driver) -> None:
        await self._clock.sleep(self._rng.choice(SECONDS))
        await driver.broker.expire()

    def _strike(self, what: str, whom: float) -> None:
        """Count only what hits somebody; a driver that is to be killed may end before."""
        match what:
            case "node lost":
                node = _pick(self._schedule.site.node_names, whom)
                held = [driver.world for driver in self._drivers if driver.line.holds(node)]
                for world in held:
                    world.lose_node(node)
                self._hits[what] += len(held)
            case "QPU fault":
                self._hits[what] += _pick(self._devices, whom).fail()
            case "broker restarted":
                self._hits[what] += not self._broker.core.is_idle()
                _restart(self._broker)
            case "driver killed" if self._drivers:
                _pick(self._drivers, whom).kill(self._rng.choice([0, self._rng.randrange(MOST_STEPS)]))


def _pick(things: Sequence[T], whom: float) -> T:
    return things[int(whom * len(things))]


class Fragile:
    """A QPU that may fail while it executes."""

    def __init__(self, device: VirtualDevice) -> None:
        self.spec, self.outages_s, self.qubits = device.spec, device.outages_s, device.qubits
        self.seconds = device.seconds
        self._device = device
        self._executing: list[asyncio.Future[Any]] = []

    def fail(self) -> int:
        """Fail what executes; returns how many tasks that are."""
        hit = [running for running in self._executing if not running.done()]
        for running in hit:
            running.set_exception(QpuBroke("the QPU failed"))
        return len(hit)

    async def run(self, work: QuantumWork) -> Any:
        answer = asyncio.ensure_future(self._device.run(work))
        outcome = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: _pass_on(done, outcome))
        self._executing.append(outcome)
        try:
            return await outcome
        finally:
            self._executing.remove(outcome)
            answer.cancel()


def _pass_on(done: asyncio.Future[Any], outcome: asyncio.Future[Any]) -> None:
    if outcome.done() or done.cancelled():
        return
    if (error := done.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(done.result())


def _restart(broker: InProcessBroker) -> None:
    """A new queue core that takes up what the old one knew, as the service does with its store."""
    old = broker.core
    broker.core = QueueCore([device.spec for device in broker.devices.values()])
    sessions = [KnownSession(session.requested, session.is_open) for session in old._sessions.values()]
    tasks = [
        KnownTask(task.submitted, task.state, task.attempts, task.queued_us, task.since_us)
        for task in old._tasks.values()
    ]
    broker.core.restore(sessions, tasks)
    for name in broker.devices:
        broker._handle(events.DeviceUp(name, old.is_up(name)))
