"""Whose a Slurm job is: every job carries the run, and the host, boot and process of the driver that holds it."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path

PREFIX = "qloom"


@dataclass(frozen=True)
class Tag:
    """One driver. A process number alone may be used again, so its start, its boot and its namespace count too."""

    run: str
    host: str
    boot: str
    namespace: str
    pid: str
    started: str
    within: str = ""  # the Slurm job that the driver was submitted as, if it was: the two end together

    @property
    def comment(self) -> str:
        """The tag as the comment of a Slurm job."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return " ".join([PREFIX, *(f"{name}={value}" for name, value in values.items() if value)])

    def job_name(self, request: str) -> str:
        """The name of a job: it says which run and which allocation, and no other job has it."""
        return f"{PREFIX}.{self.run}.{request}.{self.pid}"

    def is_dead(self, in_queue: Collection[str] = ()) -> bool:
        """Whether its driver is known to have ended, by the jobs that have not; one that is out of sight is not."""
        if self.within:
            return self.within not in in_queue
        if self.host != platform.node():
            return False
        if self.boot != _boot():
            return True
        if self.namespace != _namespace():
            return False
        return _started(self.pid) != self.started


def own_tag(run: str, within: str = "") -> Tag:
    """The tag of this process."""
    pid = str(os.getpid())
    return Tag(run, platform.node(), _boot(), _namespace(), pid, _started(pid), within)


def read_tag(comment: str) -> Tag | None:
    """The tag in a comment, or None if the job is none of ours."""
    first, *rest = comment.split() or [""]
    found = dict(word.partition("=")[::2] for word in rest)
    names = [field.name for field in fields(Tag)]
    if first != PREFIX or not all(found.get(name) for name in names if name != "within"):
        return None
    return Tag(**{name: found.get(name, "") for name in names})


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
