"""A random schedule from one number: programs, strategies, a site, and what goes wrong while they run.

Drivers live on a login node, in jobs that they work with, beside them, or in chains of jobs.
A job that was hit (its node lost, its QPU failed, its driver killed) is resumed from the journal, as a user would do.
A killed driver leaves what it held until the cluster reaps it and the broker's sessions expire: before or after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from qloom.broker.inprocess import InProcessBroker
from qloom.broker.queue import events
from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.state import KnownSession
from qloom.broker.queue.task import QuantumTask
from qloom.device import FINAL, Device, Status
from qloom.errors import AllocationEnded, QuantumFailed
from qloom.journal.events import Resumed, RunEnded, RunStarted
from qloom.journal.file import Event
from qloom.journal.results import ResultStore
from qloom.model import Payload
from qloom.programs.load import Program
from qloom.runs.assembly import Assembly
from qloom.runs.runner import Plan
from qloom.site import Overheads, Qpu, Site
from qloom.strategies import STRATEGIES, parse_strategy
from qloom.views.forecast import learn
from qloom.world import Request
from qloom.worlds.line import FifoLine
from qloom.worlds.partitions import Partitions
from qloom.worlds.virtual.loop import VirtualClock
from qloom.worlds.virtual.world import VirtualWorld
from tests.simulation import hosts
from tests.simulation.harness import interpret
from tests.simulation.mortal import Driver, MortalLoop, OwnJournal

T = TypeVar("T")
DISASTERS = ("node lost", "QPU fault", "driver killed", "broker restarted")
HANDED_OVER = "run handed over"  # not a disaster: a driver was in the way
SECONDS = (0.0, 0.1, 0.5, 1.0, 2.5, 7.0)
MOST_RESUMES = 50  # of a run, beside those when it was handed over
MOST_DRIVERS = 500
LIMIT_S = 1000.0  # of virtual time, far longer than any schedule takes
MOST_STEPS = 40  # that a driver may take after it was told to die


BROKEN = Status("failed", error="the QPU broke", fault=True)  # of a task whose QPU fails while it executes


@dataclass(frozen=True)
class Schedule:
    """Everything that a run depends on."""

    seed: int
    programs: list[list[tuple[Any, ...]]]
    strategies: list[str]
    runs: list[list[int]]  # the jobs that one driver has
    drivers: list[str]  # where the driver of each run lives
    site: Site
    disasters: list[tuple[float, str, float]]  # when, what, and whom it hits (0 to 1)


@dataclass(frozen=True)
class Ended:
    """What came of it: the result of each job, the journal of each run, and how often each disaster hit somebody."""

    results: list[Any]
    journals: list[list[Event]]
    hits: dict[str, int]
    kept: list[ResultStore]  # what the events of each journal name


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
    programs = [[_step(rng) for _ in range(rng.randint(1, 5))] for _ in range(count)]
    strategies = [rng.choice(list(STRATEGIES)) + rng.choice(holds) for _ in range(count)]
    struck = sorted((rng.uniform(0, 25), rng.choice(DISASTERS), rng.random()) for _ in range(rng.randint(1, 6)))
    drivers = [rng.choice(_drivers(run, programs, strategies, site)) for run in runs]
    return Schedule(seed, programs, strategies, runs, drivers, site, struck)


def _drivers(run: list[int], programs: list[list[tuple[Any, ...]]], strategies: list[str], site: Site) -> list[str]:
    """Where the driver of a run may live: a job in Slurm has one job of the run."""
    if len(run) > 1:
        return ["here"]
    (number,) = run
    widest = max((nodes for step in programs[number] for _, nodes in _tasks(step)), default=1)
    chains = parse_strategy(strategies[number])[0].chains
    return ["here", "in-job", *(["beside"] if widest < site.nodes else []), *(["chain"] if chains else [])]


def _tasks(step: tuple[Any, ...]) -> list[tuple[float, int]]:
    if step[0] == "block":
        return [task for inner in step[1] for task in _tasks(inner)]
    return step[1] if step[0] in ("classical", "overlap", "behind", "speculate") else []


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
        self._line = FifoLine(Partitions(schedule.site.node_names, shares), clock, overheads.tick_s)
        self._broker = InProcessBroker(self._devices, shares, clock, overheads.queue_call_s)
        self._cores = hosts.Cores(self._line)
        self._drivers: dict[Driver, hosts.Host] = {}  # those that live
        self._dead: list[Driver] = []
        self._clearing: list[asyncio.Task[None]] = []
        self._started = 0
        self._hits = dict.fromkeys((*DISASTERS, HANDED_OVER), 0)

    async def run(self) -> Ended:
        schedule = self._schedule
        self._clock.explain_with(lambda: [*self._line.who_waits(), *self._broker.who_waits()])
        self._clock.limit(LIMIT_S)
        for at_s, what, whom in schedule.disasters:
            asyncio.get_running_loop().call_later(at_s, self._strike, what, whom)
        try:
            runs = zip(schedule.runs, schedule.drivers, strict=True)
            journals = await asyncio.gather(*(self._run(numbers, kind) for numbers, kind in runs))
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
        stores = [journal.results for journal in journals]
        return Ended(results, [journal.written for journal in journals], self._hits, stores)

    async def _run(self, numbers: list[int], kind: str) -> OwnJournal:
        """Resume a run until all its jobs are done; returns its journal."""
        journal: OwnJournal | None = None
        asked: Request | None = None
        resumes = 0
        for _ in range(MOST_DRIVERS):
            self._started += 1
            driver = Driver(self._started, self._schedule.site, self._line, self._broker, self._clock)
            journal = OwnJournal(driver, self._clock, journal, 0 if journal is None else journal.cut(self._rng))
            done = journal.done_jobs()
            left = [number for number in numbers if _name(number) not in done]
            if not left:
                return journal
            assert resumes <= MOST_RESUMES, f"jobs {numbers} were resumed {MOST_RESUMES} times and are not done"
            host = await hosts.house(
                kind, self._plan(left[0], kind), driver.world, self._cores, asked, "driver", self._patience_s()
            )
            main = host.handover.main = driver.start(self._drive(driver, host, journal, left, kind))
            self._drivers[driver] = host
            await asyncio.wait([main, driver.died], return_when=asyncio.FIRST_COMPLETED)
            del self._drivers[driver]
            asked = host.handover.request
            resumes += asked is None
            if driver.is_dead:
                self._hits["driver killed"] += 1
                self._dead.append(driver)
                clearing = (self._reap(driver, host), self._expire(driver))
                self._clearing += [asyncio.ensure_future(clear) for clear in clearing]
                asked = None  # a job that waits for the end of one that was killed is never started
                await self._clock.sleep(self._rng.choice(SECONDS))
            else:
                await hosts.leave(host, driver.world, self._cores)
                assert driver.holds_nothing, "a driver has ended and holds something"
                if asked is None:
                    await main
                self._hits[HANDED_OVER] += asked is not None
        raise AssertionError(f"jobs {numbers} took {MOST_DRIVERS} drivers and are not done")

    def _patience_s(self) -> float:
        return self._rng.choice([0.1, 1.0, 10.0])

    async def _drive(
        self, driver: Driver, host: hosts.Host, journal: OwnJournal, numbers: list[int], kind: str
    ) -> None:
        """What one driver does: all jobs that are not done."""
        past = list(journal.written)
        journal.record(Resumed() if past else RunStarted(version=1), durable=True)
        assembly = Assembly(host.world, driver.broker, journal, past, learn(journal, [past]))
        jobs = [assembly.run_job(self._plan(n, kind), n) for n in numbers]
        try:
            ended_jobs = await asyncio.gather(*jobs, return_exceptions=True)
        finally:
            await host.world.close()
        for ended in ended_jobs:
            broke = isinstance(ended, QuantumFailed) and ended.message == BROKEN.error
            if isinstance(ended, BaseException) and not (broke or isinstance(ended, AllocationEnded)):
                raise ended
        journal.record(RunEnded(state="done"), durable=True)

    def _plan(self, number: int, kind: str) -> Plan:
        schedule, site = self._schedule, self._schedule.site
        if kind == "beside":  # its driver's node is no longer whole
            site = replace(site, nodes=site.nodes - 1, cluster_nodes=site.nodes)
        program, parameters = Program("interpret", interpret), {"steps": schedule.programs[number]}
        return Plan(program, parameters, schedule.strategies[number], world="virtual", site=site)

    async def _reap(self, driver: Driver, host: hosts.Host) -> None:
        await self._clock.sleep(self._rng.choice(SECONDS))
        driver.line.reap()
        if host.node is not None:
            self._cores.give_back(host.node)

    async def _expire(self, driver: Driver) -> None:
        await self._clock.sleep(self._rng.choice(SECONDS))
        await driver.broker.expire()

    def _strike(self, what: str, whom: float) -> None:
        """Count only what hits somebody; a driver that is to be killed may end before."""
        match what:
            case "node lost":
                node = _pick(self._schedule.site.node_names, whom)
                hit = [
                    driver for driver, host in self._drivers.items() if driver.line.holds(node) or host.node == node
                ]
                for driver in hit:
                    if self._drivers[driver].driver_node == node:
                        driver.kill(0)
                    else:
                        driver.world.lose_node(node)
                self._hits[what] += len(hit)
            case "QPU fault":
                self._hits[what] += _pick(self._devices, whom).fail()
            case "broker restarted":
                self._hits[what] += not self._broker.core.is_idle()
                _restart(self._broker)
            case "driver killed" if self._drivers:
                _pick(list(self._drivers), whom).kill(self._rng.choice([0, self._rng.randrange(MOST_STEPS)]))


def _pick(things: Sequence[T], whom: float) -> T:
    return things[int(whom * len(things))]


class Fragile:
    """A QPU that may fail while it executes."""

    def __init__(self, device: Device) -> None:
        self.description, self.outages_s = device.description, device.outages_s
        self.check, self.seconds, self.set_up_key = device.check, device.seconds, device.set_up_key
        self.find, self.result, self.state = device.find, device.result, device.state
        self.tasks, self.stop, self.close = device.tasks, device.stop, device.close
        self._device = device
        self._executing: dict[str, asyncio.Future[None]] = {}  # resolved when a task breaks

    def fail(self) -> int:
        """Fail what executes; returns how many tasks that are."""
        hit = [broken for broken in self._executing.values() if not broken.done()]
        for broken in hit:
            broken.set_result(None)
        return len(hit)

    async def start(self, token: str, payload: Payload) -> str:
        id = await self._device.start(token, payload)
        self._executing[id] = asyncio.get_running_loop().create_future()
        return id

    async def wait(self, id: str) -> Status:
        waiting, broken = asyncio.ensure_future(self._device.wait(id)), self._executing[id]
        try:
            await asyncio.wait([waiting, broken], return_when=asyncio.FIRST_COMPLETED)
            if not broken.done():
                status = waiting.result()
                if status.state in FINAL:
                    del self._executing[id]
                return status
            await self._device.stop(id)
            del self._executing[id]
            return BROKEN
        except asyncio.CancelledError:
            del self._executing[id]
            raise
        finally:
            waiting.cancel()


def _restart(broker: InProcessBroker) -> None:
    """A new queue core that takes up what the old one knew, as the service does with its store."""
    old = broker.core
    broker.dispatcher.core = QueueCore(broker.specs)
    sessions = [KnownSession(session.requested, session.is_open) for session in old._sessions.values()]
    tasks = [
        QuantumTask(
            task.id,
            task.device,
            task.session,
            task.expected_s,
            state=task.state,
            attempts=task.attempts,
            queued_us=task.queued_us,
            since_us=task.since_us,
        )
        for task in old._tasks.values()
    ]
    broker.core.restore(sessions, tasks)
    for name in broker.devices:
        broker.dispatcher.handle(events.DeviceUp(name, old.is_up(name)))
