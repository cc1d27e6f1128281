"""Which process on which host: known again, and known to have ended, also when its number is in use once more."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process number alone may be used again, so its start, its boot and its namespace count too."""

    host: str
    boot: str
    namespace: str
    pid: str
    started: str

    def is_dead(self) -> bool:
        """Whether it is known to have ended; one that is out of sight is not."""
        if self.host != platform.node():
            return False
        if self.boot != _boot():
            return True
        if self.namespace != _namespace():
            return False
        return _started(self.pid) != self.started


def own_process() -> Process:
    """This one."""
    return _known(str(os.getpid()))


@cache
def _known(pid: str) -> Process:
    """By its number, since a process that was forked is another one."""
    return Process(platform.node(), _boot(), _namespace(), pid, _started(pid))


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id") or "unknown"


def _namespace() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "unknown"


def _started(pid: str) -> str:
    """Clock ticks from the boot to the start of a process; nothing if it has gone or is a zombie."""
    stat = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return stat[19] if len(stat) > 19 and stat[0] != "Z" else ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
