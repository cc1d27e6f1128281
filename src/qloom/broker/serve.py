"""`qloom broker serve`: the broker as a process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import uvicorn
from fastapi import FastAPI

from qloom.broker.api.http import make_app
from qloom.broker.api.reading import ReaderPool
from qloom.broker.auth.callers import Authenticator
from qloom.broker.auth.members import Members, kept_accounts, projects_of
from qloom.broker.auth.munge import Munge
from qloom.broker.auth.tokens import TokenFile
from qloom.broker.clock import ServiceClock
from qloom.broker.config import BrokerConfig, LimitsPart, MakeDevice, devices_of
from qloom.broker.problems import Unavailable
from qloom.broker.reload import Reload
from qloom.broker.server.connections import Connections, Listener
from qloom.broker.server.limits import SparseLines
from qloom.broker.server.listen import listening
from qloom.broker.server.peers import Client, Proxies, proxies_named
from qloom.broker.server.protocol import HttpProtocol
from qloom.broker.service import BrokerService
from qloom.broker.slurm import SlurmSite
from qloom.broker.state_hook import StateHook
from qloom.broker.store.file import alone, open_store
from qloom.device import Device

LOG = logging.getLogger("qloom.broker")


def serve(
    config: BrokerConfig, make_device: MakeDevice | None = None, read: Callable[[], BrokerConfig] | None = None
) -> None:
    """Serve until told to stop. `read` reads the config again, which SIGHUP asks for."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it must not end a broker that is only starting
    asyncio.run(_serve(config, make_device or _real_device, read or (lambda: config)))


def _real_device(values: Mapping[str, Any]) -> Device:
    from qloom.devices.factory import make_device

    return make_device(values)


async def _serve(config: BrokerConfig, make_device: MakeDevice, read: Callable[[], BrokerConfig]) -> None:
    with alone(config.store_path), listening(config.addresses, config.socket_mode) as sockets:
        async with running(config, make_device) as broker, _readers(config) as reader:
            auth = authenticator(config)
            members = Members(config, broker, auth, slurm_site(config) if config.slurm.projects else None)
            await members.refresh()
            broker.spawn(members.keep())
            reload = Reload(config, read, broker, members)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
            app = make_app(broker, auth, config.limits, config.auth.proxy_header, reader)
            for name in ("uvicorn.error", "asyncio", "qloom.broker.server"):
                logging.getLogger(name).addFilter(SparseLines())  # what strangers can make happen
            LOG.info("listening on %s", ", ".join(config.addresses))
            await _Server(app, config.limits, auth.proxies, broker.feed.close).serve(sockets=sockets)


class _Server(uvicorn.Server):
    """Ends the streams of events when it is told to stop: they would keep it from ending."""

    def __init__(self, app: FastAPI, limits: LimitsPart, proxies: Proxies, end_streams: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,  # nobody may say that they are somebody else
                server_header=False,
                lifespan="off",
                timeout_keep_alive=math.ceil(limits.idle_s),
                timeout_graceful_shutdown=5,
            )
        )
        self._limits, self._proxies, self._end_streams = limits, proxies, end_streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections within the limits, which the servers of asyncio do not have."""
        connections = Connections(self._limits, self._proxies)

        def protocol(client: Client | None, closed: Callable[[], None]) -> HttpProtocol:
            return HttpProtocol(self.config, self.server_state, self._limits, client, closed)

        self.servers = [Listener(one, connections, protocol) for one in sockets or []]  # type: ignore[misc]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's own, this does not kill the process before the broker is closed."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._told_to_stop)
        yield

    def _told_to_stop(self) -> None:
        LOG.info("stopping: tasks on devices go on, and are found again")
        self.should_exit = True
        self._end_streams()


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
    """Who may, as a config says."""
    methods = config.auth.methods
    return Authenticator(
        methods,
        TokenFile(config.tokens_path, config.store_path) if "token" in methods else None,
        {name: part.members for name, part in config.projects_with({}).items()},
        config.auth.admins,
        Munge(socket=config.auth.munge_socket) if "munge" in methods else None,
        proxies_named(config.auth.proxies),
    )
