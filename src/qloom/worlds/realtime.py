"""Real time: its clock, the way into worlds in which it passes by itself, and worker processes of this machine."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from qloom.apart import let_cancel
from qloom.errors import TaskFailed
from qloom.journal.event import Record
from qloom.journal.events import WorkerStarted
from qloom.logs import exited, task_log
from qloom.model import CommandResult, Work
from qloom.site import Overheads, Site
from qloom.world import Clock, Ran, UnixClock, World
from qloom.worlds import DriverJobs, RunContext, WorldEntry, WorldFactory
from qloom.worlds.process import TaskRaised, WorkerProcess

T = TypeVar("T")


class RealClock(UnixClock):
    """Time since the run began, from a clock that never goes back."""

    def __init__(self, began_us: int | None = None) -> None:
        since_us = 0 if began_us is None else time.time_ns() // 1000 - began_us
        self._zero_ns = time.monotonic_ns() - max(0, since_us) * 1000

    def now_us(self) -> int:
        """Microseconds since the start of the run."""
        return (time.monotonic_ns() - self._zero_ns) // 1000


MakeWorld = Callable[[RunContext, RealClock], World]


@dataclass(frozen=True)
class _RealTimeFactory:
    clock: RealClock
    make_world: MakeWorld

    def make(self, context: RunContext) -> World:
        return self.make_world(context, self.clock)


class RealTimeEntry(WorldEntry):
    """The way into a world in real time; SIGTERM is handled as Ctrl-C is: everything is given back."""

    def __init__(
        self,
        make_world: MakeWorld,
        measure: Callable[..., Overheads],
        check_site: Callable[[Site], object] | None = None,
        driver_jobs: DriverJobs | None = None,
    ) -> None:
        self._make_world = make_world
        self._measure = measure
        self._check_site = check_site
        self.driver_jobs = driver_jobs

    def check(self, site: Site) -> None:
        """Refuse a site that this world cannot be made for."""
        if self._check_site is not None:
            self._check_site(site)

    def measure(self, site: Site, *modules: str) -> Overheads:
        """Measure what the world costs."""
        return self._measure(site, *modules)

    def run(self, main: Callable[[WorldFactory], Coroutine[Any, Any, T]], began_us: int, at_us: int) -> T:
        """Run in a new event loop of this thread."""

        async def guarded() -> T:
            running: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment]  # this is one
            if threading.current_thread() is threading.main_thread():
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
            else:
                let_cancel(running)
            return await main(_RealTimeFactory(RealClock(began_us), self._make_world))

        return asyncio.run(guarded())


class LocalWorkers:
    """Warm processes of this machine, each started when it is first asked for."""

    def __init__(self, clock: Clock, set_up: dict[str, Any], logs: Path | None, record: Record | None) -> None:
        self._clock = clock
        self._set_up = set_up
        self._logs = logs
        self._record = record
        self._known: dict[str, WorkerProcess] = {}

    def get(self, name: str) -> WorkerProcess:
        """The live worker of that name; a dead one is replaced."""
        known = self._known.get(name)
        if known is None or not known.alive:
            log = self._logs / f"{name}.log" if self._logs is not None else None
            known = self._known[name] = WorkerProcess(name, self._set_up, log)
            known.ready.add_done_callback(note_start(name, self._clock, self._record))
        return known

    def close(self) -> None:
        """End all of them."""
        for known in self._known.values():
            known.kill()


def note_start(name: str, clock: Clock, record: Record | None) -> Callable[[asyncio.Future[Any]], None]:
    """What a start costs is in the journal, so that virtual time can be given the same."""
    began_us = clock.now_us()

    def note(ready: asyncio.Future[Any]) -> None:
        if record is not None and not ready.cancelled() and ready.exception() is None:
            worker = ready.result()
            warm = isinstance(worker, WorkerProcess) and worker.is_warm
            record(WorkerStarted(node=name, seconds=(clock.now_us() - began_us) / 1e6, warm=warm))

    return note


def task_environment(nodes: Sequence[str], work: Work) -> dict[str, str]:
    """The variables by which a task knows where it is."""
    return {"QLOOM_NODES": ",".join(nodes), "QLOOM_CPUS": str(work.task.cpus), "QLOOM_JOB": work.job}


async def run_task(worker: WorkerProcess, nodes: Sequence[str], work: Work, logs: Path | None) -> Ran:
    """Run a task in the worker of its first node; what the task does wrong is a `TaskFailed`."""
    task = work.task
    try:
        ran = await worker.run(task, task_environment(nodes, work), task_log(logs, work))
    except TaskRaised as error:
        raise TaskFailed(f"task {task.name} on {nodes[0]} {error}", job=work.job) from None
    if isinstance(ran.result, CommandResult) and ran.result.exit_code != 0:
        raise TaskFailed(f"task {task.name} on {nodes[0]} {exited(ran.result)}", job=work.job)
    return ran
