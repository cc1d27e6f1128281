"""A random schedule from one number: programs, strategies, a site, and what goes wrong while they run.

A job that was hit (its node lost, its QPU failed, its driver killed) is resumed from the journal, as a user would do.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any

from qloom.broker import events
from qloom.broker.core import QueueCore
from qloom.broker.inprocess import InProcessBroker
from qloom.broker.state import KnownSession, KnownTask
from qloom.errors import AllocationEnded, QloomError, QuantumFailed
from qloom.journal.file import Event, Journal
from qloom.journal.forecast import learn
from qloom.programs.load import Program
from qloom.runner import Plan, run_job
from qloom.site import Overheads, Qpu, Site
from qloom.strategies import STRATEGIES
from qloom.worlds.virtual import entry
from qloom.worlds.virtual.world import VirtualWorld
from tests.simulation.harness import Simulation, interpret

DISASTERS = ("node lost", "QPU fault", "driver killed", "broker restarted")
SECONDS = (0.0, 0.1, 0.5, 1.0, 2.5, 7.0)
MOST_RESUMES = 50


class QpuBroke(QuantumFailed):
    """What a task sees whose QPU fails while it executes."""


@dataclass(frozen=True)
class Schedule:
    """Everything that a run depends on."""

    programs: list[list[tuple[Any, ...]]]
    strategies: list[str]
    site: Site
    disasters: list[tuple[float, str, float]]  # when, what, and whom it hits (0 to 1)


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
    return Schedule(
        [[_step(rng) for _ in range(rng.randint(1, 5))] for _ in range(count)],
        [rng.choice(list(STRATEGIES)) + rng.choice(holds) for _ in range(count)],
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


def run(schedule: Schedule) -> Simulation:
    """Run it to its end, resuming what was hit; nothing may be left behind."""

    async def main(clock: Any) -> Simulation:
        journal = Journal(None, clock)
        world = VirtualWorld(schedule.site, clock)
        clock.explain_with(world.who_waits)
        for device in world.devices:
            _make_fragile(device)
        broker = InProcessBroker(world.devices, clock, schedule.site.overheads.queue_call_s)
        forecaster = learn(journal, [])
        journal.record("run_started", version=1)
        drivers: list[asyncio.Task[Any]] = []

        async def job(number: int) -> Any:
            plan = Plan(
                Program("interpret", interpret),
                {"steps": schedule.programs[number]},
                strategy=schedule.strategies[number],
                world="virtual",
                site=schedule.site,
            )
            for _ in range(MOST_RESUMES):
                past: list[Event] = list(journal.events or [])
                driver = asyncio.ensure_future(
                    run_job(plan, number, world, broker, journal, past=past, forecaster=forecaster)
                )
                drivers.append(driver)
                await asyncio.wait([driver])
                drivers.remove(driver)
                if driver.cancelled():
                    continue
                error = driver.exception()
                if error is None:
                    return driver.result()
                if not isinstance(error, AllocationEnded | QpuBroke):
                    raise error
            raise AssertionError(f"job {number} was resumed {MOST_RESUMES} times and is not done")

        for at_s, what, whom in schedule.disasters:
            strike = _strikes(world, broker, drivers)[what]
            asyncio.get_running_loop().call_later(at_s, strike, whom)
        jobs = [asyncio.ensure_future(job(number)) for number in range(len(schedule.programs))]
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        await broker.close()
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, QloomError):
                raise outcome
        world.require_all_free()
        assert broker.core.is_idle(), "the broker still has tasks or sessions"
        return Simulation(list(outcomes), journal.events or [])

    return entry.execute(main, 0, 0)


def _strikes(world: VirtualWorld, broker: InProcessBroker, drivers: list[asyncio.Task[Any]]) -> dict[str, Any]:
    def lose_node(whom: float) -> None:
        world.lose_node(world.node_names[int(whom * len(world.node_names))])

    def fail_qpu(whom: float) -> None:
        device = world.devices[int(whom * len(world.devices))]
        for executing in list(device.executing):
            if not executing.done():
                executing.set_exception(QpuBroke("the QPU failed"))

    def kill_driver(whom: float) -> None:
        if drivers:
            drivers[int(whom * len(drivers))].cancel()

    return {
        "node lost": lose_node,
        "QPU fault": fail_qpu,
        "driver killed": kill_driver,
        "broker restarted": lambda whom: _restart(broker),
    }


def _make_fragile(device: Any) -> None:
    """Let what executes be failed from outside."""
    run_well = device.run
    device.executing = []

    async def run(work: Any) -> Any:
        answer = asyncio.ensure_future(run_well(work))
        outcome = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: _pass_on(done, outcome))
        device.executing.append(outcome)
        try:
            return await outcome
        finally:
            device.executing.remove(outcome)
            answer.cancel()

    device.run = run


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
