"""What a testbed has written down of itself, beside its files."""

from __future__ import annotations

import json
import os
import random
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from qloom.errors import InputError
from qloom.testbed.configs import Ports, loopback
from qloom.testbed.place import open_place
from qloom.testbed.processes import start_ticks
from qloom.testbed.settings import Settings

FILE = "testbed.json"
CONTROL = "run/control.sock"
SUPERVISOR = Path("run", "supervisor.json")
LOWEST_PORT = 10_000  # below the kernel's ephemeral ports, which clients take at any moment


@dataclass(frozen=True)
class Record:
    """Settings, ports, and whether it ends with whoever started it."""

    settings: Settings
    ports: Ports
    attached: bool = False


def write_record(directory: Path, record: Record) -> None:
    """Keep it in the directory of the testbed."""
    (directory / FILE).write_text(json.dumps(asdict(record)))


def read_record(directory: Path) -> Record:
    """What is written in a directory; raises if there is no testbed, or if it is somebody else's."""
    try:
        with open_place(directory) as place:
            values = json.loads(place.read(FILE))
    except (OSError, ValueError):
        raise InputError(f"there is no testbed in {directory}", hint="qloom testbed up") from None
    ports = Ports(values["ports"]["slurmctld"], values["ports"]["slurmdbd"], tuple(values["ports"]["slurmd"]))
    return Record(Settings(**values["settings"]), ports, values["attached"])


def write_supervisor(directory: Path) -> None:
    """Say which process stands behind a testbed: this one."""
    (directory / SUPERVISOR).write_text(json.dumps([os.getpid(), start_ticks(os.getpid())]))


def read_supervisor(directory: Path) -> tuple[int, int] | None:
    """The id and the start of the process behind a testbed, if it has come so far."""
    try:
        with open_place(directory) as place, place.enter(SUPERVISOR.parent.name) as run:
            pid, ticks = json.loads(run.read(SUPERVISOR.name))
    except (OSError, ValueError):
        return None
    return pid, ticks


def is_alive(supervisor: tuple[int, int]) -> bool:
    """Whether it is still that process."""
    return start_ticks(supervisor[0]) == supervisor[1]


def free_ports(settings: Settings) -> Ports:
    """Ports that nobody listens on."""
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
