"""`qloom broker serve`: the broker as a process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from qloom.broker.auth import PEER, Authenticator
from qloom.broker.clock import ServiceClock
from qloom.broker.config import BrokerConfig, MakeDevice, devices_of, split_address
from qloom.broker.devices.base import Device
from qloom.broker.http import make_app
from qloom.broker.members import Members, kept_accounts, projects_of
from qloom.broker.munge import Munge
from qloom.broker.reading import ReaderPool
from qloom.broker.reload import Reload
from qloom.broker.shell import Broker
from qloom.broker.slurm import SlurmSite
from qloom.broker.state_hook import StateHook
from qloom.broker.store_file import alone, open_store
from qloom.broker.tokens import Tokens
from qloom.errors import InputError

LOG = logging.getLogger("qloom.broker")


def serve(
    config: BrokerConfig, make_device: MakeDevice | None = None, read: Callable[[], BrokerConfig] | None = None
) -> None:
    """Serve until told to stop. `read` reads the config again, which SIGHUP asks for."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it must not end a broker that is only starting
    asyncio.run(_serve(config, make_device or _real_device, read or (lambda: config)))


def _real_device(values: Mapping[str, Any]) -> Device:
    from qloom.broker.devices.factory import make_device

    return make_device(values)


async def _serve(config: BrokerConfig, make_device: MakeDevice, read: Callable[[], BrokerConfig]) -> None:
    with alone(config.store_path):
        async with running(config, make_device) as broker, _readers(config) as reader:
            auth = authenticator(config)
            members = Members(config, broker, auth, slurm_site(config) if config.slurm.projects else None)
            await members.refresh()
            broker.spawn(members.keep())
            reload = Reload(config, read, broker, members)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
            app = make_app(
                broker,
                auth,
                max_bytes=config.limits.max_bytes,
                requests_per_s=config.limits.requests_per_s,
                burst=config.limits.burst,
                reader=reader,
            )
            sockets = [_listen(address, config.socket_mode) for address in config.addresses]
            options = uvicorn.Config(
                app,
                http=_PeerProtocol,
                log_config=None,
                access_log=False,
                proxy_headers=False,  # nobody may say that they are somebody else
                server_header=False,
                lifespan="off",
                timeout_graceful_shutdown=5,
            )
            LOG.info("listening on %s", ", ".join(config.addresses))
            await _Server(options, broker.feed.close).serve(sockets=sockets)


class _Server(uvicorn.Server):
    """Ends the streams of events when it is told to stop: they would keep it from ending."""

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_streams = end_streams

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
async def running(config: BrokerConfig, make_device: MakeDevice) -> AsyncIterator[Broker]:
    """A broker as a config describes it, started."""
    devices = devices_of(config, make_device)
    names = [device.description.name for device in devices]
    store = open_store(config.store_path)
    promised = {name: wait_s for name in names if (wait_s := config.promised_wait_s(name)) is not None}
    broker = Broker(
        devices,
        [config.spec(device.description.name, device.description.lanes) for device in devices],
        store,
        ServiceClock(int(store.get("clock_us", "0"))),
        projects=projects_of(config, kept_accounts(store) if config.slurm.projects else {}),
        max_jobs=config.limits.max_jobs,
        half_life_s=config.half_life_s,
        keep_s=config.limits.keep_results_s,
        session_idle_s=config.limits.session_idle_s,
        poll_s=config.poll_s,
        promised_wait_s=promised,
        state_hook=StateHook(config.hook) if config.hook else None,
        slurm=slurm_site(config) if config.slurm.require_job else None,
    )
    try:
        await broker.start()
        yield broker
    finally:
        await broker.close()


@contextlib.asynccontextmanager
async def _readers(config: BrokerConfig) -> AsyncIterator[ReaderPool]:
    limits = config.limits
    pool = ReaderPool(limits.check_processes, limits.check_memory_mib, limits.check_cpu_s, limits.check_waiting_bytes)
    try:
        await pool.start()
        yield pool
    finally:
        await pool.close()


def slurm_site(config: BrokerConfig) -> SlurmSite:
    """Slurm, as a config says."""
    return SlurmSite(config.slurm.gres, config.slurm.timeout_s, config.slurm.check_s)


def authenticator(config: BrokerConfig) -> Authenticator:
    """Who may, as a config says."""
    methods = config.auth.methods
    return Authenticator(
        methods,
        Tokens(config.tokens_path) if "token" in methods else None,
        {name: part.members for name, part in config.projects_with({}).items()},
        config.auth.admins,
        Munge(socket=config.auth.munge_socket) if "munge" in methods else None,
    )


def _listen(address: str, mode: int) -> socket.socket:
    try:
        if not address.startswith("unix:"):
            host, port = split_address(address)
            family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind, protocol)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            return listener
        path = Path(address.removeprefix("unix:"))
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # the lock on the store says that nobody else listens there
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        os.chmod(path, mode)
        return listener
    except OSError as error:
        raise InputError(f"cannot listen on {address}: {error.strerror or error}") from None


class _PeerProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Tells who is at the other end of a unix socket, in the place of a client's address."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.family == socket.AF_UNIX:
            size = struct.calcsize("3i")
            _pid, uid, _gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
            self.client = (PEER, uid)
