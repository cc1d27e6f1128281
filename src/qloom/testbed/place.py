"""Where a testbed lives: its private directory, the record of it there, its supervisor, and the ports of its daemons.

The path of the directory is short, because unix sockets have little room for one. This module starts nothing.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from qloom.errors import InputError, NotPrivate
from qloom.private import PrivateDirectory, runtime_directory
from qloom.testbed.configs import Ports, loopback
from qloom.testbed.processes import start_ticks
from qloom.testbed.settings import TestbedSettings

LONGEST = 70  # a unix socket's path has 107 characters, and Slurm adds spool/c1/c1_123456.0 and more
PARTS = ("etc", "run", "log", "state", "spool", "tmp", "db", "broker")
ELSEWHERE = "choose another with --directory"
FILE = "testbed.json"
CONTROL = "run/control.sock"
SUPERVISOR = Path("run", "supervisor.json")
LOWEST_PORT = 10_000  # below the kernel's ephemeral ports, which clients take at any moment


def default_directory(name: str) -> Path:
    """Where a testbed lives by default: in the runtime directory, or else the temporary one, of the user."""
    return _root() / name


def _root() -> Path:
    runtime = runtime_directory()
    if runtime is not None and len(str(runtime)) <= 30:
        return runtime / "qloom"
    return Path(tempfile.gettempdir()) / f"qloom-{os.getuid()}"


def open_place(directory: Path, *, make: bool = False) -> PrivateDirectory:
    """Open the directory of a testbed, private to this user; in the default place its parent is checked too.

    A directory that another user made is refused: whoever writes the files of a testbed decides what is run.
    """
    try:
        if directory.parent != _root():
            return _private(PrivateDirectory.open(directory, make=make))
        with _private(PrivateDirectory.open(directory.parent, make=make)) as root:
            return _private(root.enter(directory.name, make=make))
    except NotPrivate as error:
        raise NotPrivate(error.message, hint=ELSEWHERE) from None


def require_private(directory: Path) -> None:
    """Refuse a directory that another user made; one that does not exist is fine."""
    try:
        open_place(directory).close()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InputError(f"cannot read {directory}: {error.strerror}") from None


def make_root(directory: Path) -> None:
    """Make the parent of a testbed's directory, if that is the default place."""
    if directory.parent == _root():
        try:
            _private(PrivateDirectory.open(directory.parent, make=True)).close()
        except NotPrivate as error:
            raise NotPrivate(error.message, hint=ELSEWHERE) from None
        except OSError as error:
            raise InputError(f"cannot make {directory.parent}: {error.strerror}") from None


def make(directory: Path) -> None:
    """Make the directory of a testbed, private and empty."""
    if len(str(directory)) > LONGEST:
        raise InputError(f"{directory} is too long a path for unix sockets", hint=f"at most {LONGEST} characters")
    try:
        with open_place(directory, make=True) as place:
            if os.listdir(place.descriptor):
                raise InputError(f"{directory} is not empty", hint=ELSEWHERE)
            for part in PARTS:
                os.mkdir(part, 0o700, dir_fd=place.descriptor)
    except OSError as error:
        raise InputError(f"cannot make {directory}: {error.strerror}") from None


def _private(directory: PrivateDirectory) -> PrivateDirectory:
    """Close a directory to other users, since there are keys in it. One of root is trusted, but cannot be changed."""
    if os.fstat(directory.descriptor).st_uid == os.geteuid():
        os.fchmod(directory.descriptor, 0o700)
    return directory


def remove(directory: Path) -> None:
    """Remove the directory with all that is in it."""
    shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class TestbedRecord:
    """The settings and ports of a testbed, and whether it ends with the process that started it."""

    settings: TestbedSettings
    ports: Ports
    attached: bool = False

    __test__ = False  # for pytest, which takes it for a test


def write_record(directory: Path, record: TestbedRecord) -> None:
    """Write the record into the directory of the testbed."""
    (directory / FILE).write_text(json.dumps(asdict(record)))


def read_record(directory: Path) -> TestbedRecord:
    """Read the record in a directory; raises if there is no testbed, or if it belongs to another user."""
    try:
        with open_place(directory) as place:
            values = json.loads(place.read(FILE))
    except (OSError, ValueError):
        raise InputError(f"there is no testbed in {directory}", hint="qloom testbed up") from None
    ports = Ports(values["ports"]["slurmctld"], values["ports"]["slurmdbd"], tuple(values["ports"]["slurmd"]))
    return TestbedRecord(TestbedSettings(**values["settings"]), ports, values["attached"])


def write_supervisor(directory: Path) -> None:
    """Write down that this process is the supervisor of a testbed."""
    (directory / SUPERVISOR).write_text(json.dumps([os.getpid(), start_ticks(os.getpid())]))


def read_supervisor(directory: Path) -> tuple[int, int] | None:
    """The process id of the supervisor and when it started; None before it has written them."""
    try:
        with open_place(directory) as place, place.enter(SUPERVISOR.parent.name) as run:
            pid, ticks = json.loads(run.read(SUPERVISOR.name))
    except (OSError, ValueError):
        return None
    return pid, ticks


def is_alive(supervisor: tuple[int, int]) -> bool:
    """Whether the supervisor lives: the same id, and started at the same time."""
    return start_ticks(supervisor[0]) == supervisor[1]


def free_ports(settings: TestbedSettings) -> Ports:
    """Choose ports that nobody listens on."""
    found: list[int] = []
    candidates = list(range(LOWEST_PORT, _first_ephemeral()))
    random.SystemRandom().shuffle(candidates)
    for number in candidates:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((loopback(), number))
            except OSError:
                continue
        found.append(number)
        if len(found) == 2 + len(settings.node_names):
            return Ports(found[0], found[1], tuple(found[2:]))
    raise InputError(f"no free ports on {os.uname().nodename}")


def _first_ephemeral() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32768
