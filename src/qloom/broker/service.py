"""The broker's service: its parts, each given what it needs. Every reply is sent only after its change is on disk.

It runs in real and in virtual time, in process or behind HTTP: no threads, no sockets, no clock of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qloom.broker.api.devices import DeviceApi
from qloom.broker.api.oversight import Oversight
from qloom.broker.api.sessions import SessionApi
from qloom.broker.api.tasks import TaskApi
from qloom.broker.clock import BrokerTime
from qloom.broker.dispatcher import Dispatcher
from qloom.broker.feed import EventFeed
from qloom.broker.monitor import DeviceMonitor, StateHook
from qloom.broker.placing import Placing
from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.lines import DeviceSpec
from qloom.broker.queue.policies import Ledger, Project, Usage
from qloom.broker.slurm import SlurmSite
from qloom.broker.slurm_shares import SlurmShares
from qloom.broker.store.database import Database
from qloom.broker.store.session_store import DeviceSettings, SessionStore
from qloom.broker.store.task_store import TaskStore
from qloom.broker.stored import KeyRing, StoredRegistry
from qloom.device import Device
from qloom.world import Clock

TIDY_S = 60.0


class BrokerService:
    """Tasks, sessions and devices. `start` before, `close` after.

    queue core  decides who uses which device; pure
    dispatcher  carries its decisions out, on devices and in the store
    registry    tasks and sessions that are not over, and who waits for them
    stores      what survives a crash
    monitor     the states of the devices
    APIs        what callers may do with tasks, sessions and devices; oversight for administrators
    """

    def __init__(
        self,
        devices: Sequence[Device],
        specs: Sequence[DeviceSpec],
        database: Database,
        clock: Clock,
        *,
        projects: Sequence[Project] = (),
        max_jobs: int | None = None,
        half_life_s: float = 7 * 86400.0,
        keep_s: float = 7 * 86400.0,  # how long results can be read
        session_idle_s: float = 3600.0,  # a session that nobody uses is closed
        poll_s: float = 5.0,  # how often devices are asked for their state; 0: only at the start
        promised_wait_s: Mapping[str, float] | None = None,  # what the site has promised, by device
        hook: StateHook | None = None,
        slurm: SlurmSite | None = None,  # sessions need a job that holds their shares
        require_job_for_tasks: bool = False,  # and tasks outside sessions do, too
    ) -> None:
        self.keep_s, self.session_idle_s, self._poll_s = keep_s, session_idle_s, poll_s
        self.database = database
        self._devices = {device.description.name: device for device in devices}
        settings = DeviceSettings(database)
        self.specs = _with_shares(specs, settings)
        self.time = time = BrokerTime(clock, database)
        self.feed = feed = EventFeed(f"{clock.now_us():x}")
        task_store, session_store, keys = TaskStore(database), SessionStore(database), KeyRing(TaskStore(database))

        ledger = _ledger(projects, max_jobs, half_life_s, task_store, time)
        self.core = core = QueueCore(list(self.specs.values()), ledger)
        self.registry = registry = StoredRegistry(task_store, session_store, feed, time, ledger)
        self.dispatcher = dispatcher = Dispatcher(core, registry, self._devices, time)
        self.monitor = DeviceMonitor(self._devices, settings, dispatcher, feed, time, poll_s, hook)

        only_device, of_tasks = len(self._devices) == 1, require_job_for_tasks
        self.slurm_shares = shares = (
            SlurmShares(slurm, core, dispatcher, registry, time, only_device=only_device, of_tasks=of_tasks)
            if slurm is not None
            else None
        )
        self.sessions = SessionApi(core, dispatcher, registry, session_store, time, keys, shares)
        placing = Placing(self._devices, self.specs, core)
        task_shares = shares if require_job_for_tasks else None
        self.tasks = TaskApi(core, dispatcher, registry, task_store, time, placing, self.sessions, keys, task_shares)
        self.oversight = Oversight(core, dispatcher, registry, task_store, self.tasks, self.sessions)
        self.devices = DeviceApi(
            self._devices,
            self.specs,
            promised_wait_s or {},
            core,
            dispatcher,
            registry,
            self.monitor,
            settings,
            database,
            self.tasks,
        )
        self._task_store, self._session_store = task_store, session_store

    async def start(self) -> None:
        """Take up what was left, then begin to serve."""
        await self.monitor.look_at_all()
        self.dispatcher.restore(self._task_store.load_tasks(), self._session_store.load(), self.time.after_jumps_us)
        self.monitor.start()
        self.tidy()
        await self.database.durable()
        if self._poll_s > 0:
            self.monitor.keep_watching()
            self.spawn(self._keep_tidy())
            if self.slurm_shares is not None:
                self.spawn(self._keep_checking(self.slurm_shares))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside, until the service is closed."""
        self.dispatcher.spawn(work)

    def tidy(self) -> None:
        """Close sessions that nobody uses, and forget results that were kept for long enough."""
        now_us = self.time.now_us()
        self.sessions.close_idle(self.session_idle_s)
        before_us = self.time.ago_us(now_us, self.keep_s)
        self.time.forget(before_us)
        self.time.note(now_us)
        self._task_store.forget_ended(before_us)

    async def _keep_tidy(self) -> None:
        while True:
            await self.time.sleep(TIDY_S)
            self.tidy()

    async def _keep_checking(self, shares: SlurmShares) -> None:
        while True:
            await self.time.sleep(shares.site.check_s)
            await shares.check()

    def end_waits(self) -> None:
        """Answer all who wait or listen, since the service is about to be closed."""
        self.feed.close()
        self.registry.end_waits()

    async def close(self) -> None:
        """Stop everything here; tasks on devices go on, and are found again."""
        self.time.note(self.time.now_us())
        self.feed.close()
        await self.dispatcher.close()
        try:
            await asyncio.gather(*(device.close() for device in self._devices.values()))
        finally:
            self.database.close()


def _with_shares(specs: Sequence[DeviceSpec], settings: DeviceSettings) -> dict[str, DeviceSpec]:
    """What the queue knows of devices, with the shares that an administrator has set."""
    kept = {name: shares for name, (_, shares) in settings.load().items() if shares}
    return {spec.name: replace(spec, shares=kept.get(spec.name, spec.shares)) for spec in specs}


def _ledger(
    projects: Sequence[Project], max_jobs: int | None, half_life_s: float, store: TaskStore, time: BrokerTime
) -> Ledger:
    used_s, usage = store.usage()
    return Ledger(
        {project.name: project for project in projects},
        max_jobs,
        used_s=used_s,
        usage=Usage(
            half_life_s=half_life_s, seconds=usage["seconds"], as_of_us=time.after_jumps_us(usage["as_of_us"])
        ),
    )
