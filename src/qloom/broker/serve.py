"""`qloom broker serve`: the broker as a process.

A stop has a deadline: whatever the broker still waits for then, its children are killed and the process exits.
A broker that hangs while it stops keeps its lock on the store, and no other can start. The deadline is a thread's, so
that it passes even if the event loop is blocked. Nothing is lost: every reply was sent after its change was on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from qloom.aio import where_tasks_wait
from qloom.broker.api.reading import ReaderPool
from qloom.broker.auth.callers import Authenticator
from qloom.broker.auth.peers import Munge, proxies_named
from qloom.broker.auth.tokens import TokenFile
from qloom.broker.clock import ServiceClock
from qloom.broker.config import BrokerConfig, MakeDevice, devices_of
from qloom.broker.doors.opening import doors_of
from qloom.broker.members import Members, Reload, kept_accounts, projects_of
from qloom.broker.monitor import StateHook
from qloom.broker.problems import Unavailable
from qloom.broker.server.connections import listening
from qloom.broker.server.http import make_app
from qloom.broker.server.limits import SparseLines
from qloom.broker.server.server import LimitedServer
from qloom.broker.service import BrokerService
from qloom.broker.slurm import SlurmSite
from qloom.broker.store.file import alone, open_store
from qloom.device import Device

LOG = logging.getLogger("qloom.broker")
STOP_S = 25.0  # less than TimeoutStopSec of the systemd unit, so that the log says what it waited for
LOGGING_S = 1.0  # to write that; whoever reads the log may hang as well
EXIT_CODE = 1


def serve(
    config: BrokerConfig,
    make_device: MakeDevice | None = None,
    read: Callable[[], BrokerConfig] | None = None,
    *,
    stop_s: float = STOP_S,
) -> None:
    """Serve until asked to stop, which takes `stop_s` at most. `read` reads the config again, as SIGHUP asks for."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it must not end a broker that is only starting
    deadline = StopDeadline(stop_s)
    try:
        asyncio.run(_serve(config, make_device or _real_device, read or (lambda: config), deadline))
    finally:
        deadline.cancel()


def _real_device(values: Mapping[str, Any]) -> Device:
    from qloom.devices.factory import make_device

    return make_device(values)


async def _serve(
    config: BrokerConfig, make_device: MakeDevice, read: Callable[[], BrokerConfig], deadline: StopDeadline
) -> None:
    with alone(config.store_path), listening(config.addresses, config.socket_mode) as sockets:
        async with (
            running(config, make_device) as broker,
            _readers(config) as reader,
            doors_of(config.doors, config.limits, broker) as doors,
        ):
            auth = authenticator(config)
            members = Members(config, broker, auth, slurm_site(config) if config.slurm.projects else None)
            await members.refresh()
            broker.spawn(members.keep())
            reload = Reload(config, read, broker, members)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
            app = make_app(broker, auth, config.limits, config.auth.proxy_header, reader, doors)
            for name in ("uvicorn.error", "asyncio", "qloom.broker.server"):
                logging.getLogger(name).addFilter(SparseLines())  # what strangers can make happen
            LOG.info("listening on %s", ", ".join(config.addresses))
            for door in doors:
                LOG.info("door %s is open for %s", door.path, ", ".join(door.devices))

            def stop() -> None:
                LOG.info("stopping: tasks on devices go on, and are found again")
                deadline.start()
                broker.end_waits()

            await LimitedServer(app, config.limits, auth.proxies, stop).serve(sockets=sockets)


@contextlib.asynccontextmanager
async def running(config: BrokerConfig, make_device: MakeDevice) -> AsyncIterator[BrokerService]:
    """A broker as a config describes it, started."""
    devices = devices_of(config, make_device)
    database = open_store(config.store_path)
    described = [device.description for device in devices]
    promised = {one.name: wait_s for one in described if (wait_s := config.promised_wait_s(one)) is not None}
    broker = BrokerService(
        devices,
        [config.spec(description) for description in described],
        database,
        ServiceClock(int(database.get("clock_us", "0"))),
        projects=projects_of(config, kept_accounts(database) if config.slurm.projects else {}),
        max_jobs=config.limits.max_jobs,
        half_life_s=config.half_life_s,
        keep_s=config.limits.keep_results_s,
        session_idle_s=config.limits.session_idle_s,
        poll_s=config.poll_s,
        promised_wait_s=promised,
        hook=StateHook(config.hook) if config.hook else None,
        slurm=slurm_site(config) if config.slurm.require_job or config.slurm.require_job_for_tasks else None,
        require_job_for_tasks=config.slurm.require_job_for_tasks,
    )
    try:
        await broker.start()
        if broker.slurm_shares is not None:
            broker.spawn(_warn_of_shares(broker, broker.slurm_shares.site))
        yield broker
    finally:
        await broker.close()


@contextlib.asynccontextmanager
async def _readers(config: BrokerConfig) -> AsyncIterator[ReaderPool]:
    limits = config.limits
    pool = ReaderPool(limits.check_processes, limits.check_memory_mib, limits.check_cpu_s)
    try:
        await pool.start()
        yield pool
    finally:
        await pool.close()


async def _warn_of_shares(broker: BrokerService, site: SlurmSite) -> None:
    """Sessions would be refused, or wait, if Slurm gives out other shares than there are; it may be away just now."""
    try:
        for difference in await site.share_differences({name: broker.core.shares(name) for name in broker.specs}):
            LOG.warning("%s", difference)
    except Unavailable as error:
        LOG.warning("shares are not compared with Slurm's: %s", error.message)


def slurm_site(config: BrokerConfig) -> SlurmSite:
    """Slurm, as a config says."""
    part = config.slurm
    return SlurmSite(part.gres, part.timeout_s, part.check_s, part.confirm_s)


def authenticator(config: BrokerConfig) -> Authenticator:
    """Make the authenticator that the config describes."""
    methods = config.auth.methods
    return Authenticator(
        methods,
        TokenFile(config.tokens_path, config.store_path) if "token" in methods else None,
        {name: part.members for name, part in config.projects_with({}).items()},
        config.auth.admins,
        Munge(socket=config.auth.munge_socket) if "munge" in methods else None,
        proxies_named(config.auth.proxies),
    )


class StopDeadline:
    """`start` when the broker is asked to stop, `cancel` when it has stopped."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        """Let the time run; called in the thread of the event loop, the first call counts."""
        if self._timer is None:
            self._timer = threading.Timer(self._within_s, self._exit, (asyncio.get_running_loop(),))
            self._timer.daemon = True
            self._timer.start()

    def cancel(self) -> None:
        """The broker has stopped."""
        if self._timer is not None:
            self._timer.cancel()

    def _exit(self, loop: asyncio.AbstractEventLoop) -> None:
        report = threading.Thread(target=self._report, args=(loop,), daemon=True)
        report.start()
        report.join(LOGGING_S)
        for pid in _children():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        os._exit(EXIT_CODE)

    def _report(self, loop: asyncio.AbstractEventLoop) -> None:
        main = sys._current_frames().get(threading.main_thread().ident or 0)
        place = traceback.extract_stack(main)[-1] if main is not None else None
        LOG.error("the broker did not stop within %g s: its children are killed, and it exits", self._within_s)
        LOG.error("the event loop is at %s", f"{place.name}:{place.lineno}" if place is not None else "its end")
        for waiting in where_tasks_wait(loop):
            LOG.error("it waits in %s", waiting)


def _children() -> list[int]:
    """The processes that this one has started and that have not ended."""
    threads = Path("/proc/self/task").iterdir()
    return [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]
