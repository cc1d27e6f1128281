"""Processes as /proc shows them: which ones belong to a testbed, and how all of them are ended.

This module knows how Slurm's processes can be recognised, and nothing else of Slurm.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

MARK = "QLOOM_TESTBED_DAEMON"  # in the environment of the daemons; users' shells never have it
SLURM_OWN = ("slurmstepd", "slurmscriptd")  # started by Slurm, without our variable
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SHARED_MEMORY = "/dev/shm/"  # noqa: S108

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """In a new child: be killed when the process that started it dies."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def start_ticks(pid: int) -> int | None:
    """When a process was started, which with its id identifies it; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def descendants(pid: int) -> list[int]:
    """All living processes below one."""
    children: dict[int, list[int]] = {}
    for one in _all():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX":
                children.setdefault(int(fields[1]), []).append(one)
    found, ahead = [], [pid]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def left_over(directory: Path) -> list[int]:
    """Processes of the testbed in a directory, whoever their parent is: its daemons, job steps and tasks.

    Daemons and tasks are known by their environment. Job steps of Slurm 24.11 and later write their title over it:
    they are known by the files that they have open.
    """
    daemon = f"{MARK}={directory}".encode()
    config = f"SLURM_CONF={directory}/etc/slurm.conf".encode()
    found = []
    for pid in _all():
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        task = config in variables and any(one.startswith(b"SLURMD_NODENAME=") for one in variables)
        step = name_of(pid) in SLURM_OWN and (config in variables or _has_open(pid, directory))
        if pid != os.getpid() and (daemon in variables or task or step):
            found.append(pid)
    return found


def _has_open(pid: int, directory: Path) -> bool:
    """Whether a process works in a directory or has a file of it open, such as a log; the directory may be gone."""
    links = [Path(f"/proc/{pid}/cwd")]
    with contextlib.suppress(OSError):
        links += Path(f"/proc/{pid}/fd").iterdir()
    for link in links:
        with contextlib.suppress(OSError):
            if os.readlink(link).startswith(f"{directory}/"):
                return True
    return False


def name_of(pid: int) -> str:
    """The short name of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def shared_memory(pids: Iterable[int]) -> list[Path]:
    """Files of shared memory that processes have mapped."""
    found: dict[Path, None] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                path = line.partition(SHARED_MEMORY)[2]
                if path and not path.endswith(" (deleted)"):
                    found[Path(SHARED_MEMORY + path)] = None
    return list(found)


def kill_all(find: Callable[[], list[int]], within_s: float = 10.0) -> bool:
    """Kill until no process is found, and remove the shared memory of those killed; false if some cannot be ended."""
    deadline_s = time.monotonic() + within_s
    files: list[Path] = []
    while pids := find():
        if time.monotonic() > deadline_s:
            return False
        files += shared_memory(pids)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    remove_unused(files)
    return True


def remove_unused(files: Iterable[Path]) -> None:
    """Remove files of shared memory that no process uses any more."""
    used = set(shared_memory(_all()))
    for path in files:
        if path not in used:
            path.unlink(missing_ok=True)


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
