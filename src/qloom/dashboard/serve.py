"""`qloom dashboard` as a process: one for each user, on a port of the loopback interface or a unix socket.

Started a second time, it prints another link to the one that runs. A run that is resumed from the page is a separate
process, which goes on when the dashboard ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from qloom.dashboard.access import LoginKeys
from qloom.dashboard.replay import replay_apart
from qloom.errors import InputError
from qloom.journal import home
from qloom.journal.file import FILE_NAME
from qloom.private import PrivateDirectory
from qloom.runs.cancel import cancel

DEFAULT = "127.0.0.1:0"
ADDRESS, LOCK, KEYS = "address", "lock", "keys"
FORWARDED_PORT = 8765  # for the example of ssh -L to a unix socket
RESUME_S = 20.0  # for a resumed run to say what is wrong with it

Print = Callable[[str], None]


def serve(listen: str, show: Print) -> None:
    """Serve until SIGINT or SIGTERM, or print another link to the dashboard that runs already."""
    if find_spec("uvicorn") is None:
        raise InputError("uvicorn: not installed", hint='pip install "qloom[dashboard]"')
    require_local(listen)
    directory = home.home() / "dashboard"
    with PrivateDirectory.open(directory, make=True), _alone(directory / LOCK) as is_alone:
        keys = LoginKeys(directory / KEYS)
        if not is_alone:
            _show_link((directory / ADDRESS).read_text(), keys, show)
            return
        asyncio.run(_serve(listen, directory, keys, show))


def require_local(listen: str) -> None:
    """Refuse what other machines could reach: there is no encryption."""
    if listen.startswith("unix:"):
        return
    from qloom.broker.config import split_address

    try:
        host, _port = split_address(listen)
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise InputError(f"{listen!r} is no address", hint="127.0.0.1:PORT or unix:PATH") from None
    if not local:
        raise InputError(
            f"{host} can be reached from other machines, and the dashboard is not encrypted",
            hint="listen on 127.0.0.1, and use ssh -L from elsewhere",
        )


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Hold the lock of this user's dashboard; False if another process has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)


async def _serve(listen: str, directory: Path, keys: LoginKeys, show: Print) -> None:
    from qloom.broker.auth.peers import Proxies
    from qloom.broker.config_parts import LimitsPart
    from qloom.broker.server.connections import listening
    from qloom.broker.server.server import LimitedServer
    from qloom.dashboard.app import DashboardApp

    limits = LimitsPart(connections=64, peer_connections=48, idle_s=30.0)
    app = DashboardApp(keys, {"cancel": _cancel, "resume": _resume, "what-if": replay_apart})
    with listening([listen], 0o600) as sockets:
        address = listen
        if not listen.startswith("unix:"):
            host, port = sockets[0].getsockname()[:2]
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        (directory / ADDRESS).write_text(address)
        _show_link(address, keys, show)
        await LimitedServer(app, limits, Proxies(), app.end_streams).serve(sockets=sockets)


def _show_link(address: str, keys: LoginKeys, show: Print) -> None:
    path = address.removeprefix("unix:") if address.startswith("unix:") else None
    place = address if path is None else f"127.0.0.1:{FORWARDED_PORT}"
    show(f"http://{place}/#key={keys.make()}")
    forwarded = f"{place.rpartition(':')[2]}:{path or address}"
    show(f"from another machine first: ssh -L {forwarded} THIS-MACHINE")
    show("the link works once, within ten minutes; qloom dashboard in another terminal prints another")


async def _cancel(run: str, _content: dict[str, Any]) -> dict[str, Any]:
    return {"message": await asyncio.to_thread(cancel, run)}


async def _resume(run: str, _content: dict[str, Any]) -> dict[str, Any]:
    return {"message": await asyncio.to_thread(resume_in_background, run)}


def resume_in_background(run: str) -> str:
    """Resume a run in a separate process; returns once it has begun, and raises if it is refused."""
    directory = home.runs_directory() / run
    (directory / "logs").mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-P", "-m", "qloom", "resume", run, "--json"]  # -P: others may write where we started
    before = (directory / FILE_NAME).stat().st_size
    with open(directory / "logs" / "resume.log", "w+b", opener=_private) as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        threading.Thread(target=process.wait, daemon=True).start()  # or it would stay as a zombie when it has ended
        until_s = time.monotonic() + RESUME_S
        while process.returncode is None and time.monotonic() < until_s:
            if (directory / FILE_NAME).stat().st_size > before:
                break
            time.sleep(0.05)
        if process.returncode == 2:  # what it was asked is not possible
            output.seek(0)
            raise InputError(_first_error(output.read().decode(errors="replace")))
    return f"process {process.pid} goes on with it"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _first_error(text: str) -> str:
    try:
        return str(json.loads(text)["errors"][0]["message"])
    except (ValueError, KeyError, IndexError, TypeError):
        return text.strip().partition("\n")[0] or "the run could not be resumed"
