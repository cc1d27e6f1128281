"""Runs a command under the system call filter of a systemd unit: `python -m tests.security.seccomp UNIT COMMAND...`.

The lists of the unit are expanded as systemd does (the groups are in data/syscall_groups.json, from systemd itself)
and given to libseccomp, which is what systemd uses. A call that is not in them fails with the unit's
SystemCallErrorNumber, or kills the process if there is none.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import sys
from pathlib import Path

GROUPS = json.loads((Path(__file__).parent / "data" / "syscall_groups.json").read_text())["groups"]
ALWAYS = ("@default", "execve")  # systemd allows these in any case
KILL_PROCESS, ERRNO, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
EQUAL = 4
SET_NO_NEW_PRIVILEGES = 38


class Compare(ctypes.Structure):
    """`struct scmp_arg_cmp`."""

    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def settings(unit: Path) -> dict[str, list[str]]:
    """The lines of a unit: each key with all its values, in order."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith(("#", ";")):
            found.setdefault(key.strip(), []).append(value.strip())
    return found


def expanded(names: list[str]) -> list[str]:
    """Groups written out."""
    calls: list[str] = []
    for name in names:
        calls += expanded(GROUPS[name]) if name.startswith("@") else [name]
    return calls


def allowed(unit: Path) -> list[str]:
    """The system calls that a unit allows; later lines add to what is allowed, or with ~ take away from it."""
    calls = dict.fromkeys(expanded(list(ALWAYS)))
    for line in settings(unit)["SystemCallFilter"]:
        for name in expanded(line.removeprefix("~").split()):
            if line.startswith("~"):
                calls.pop(name, None)
            else:
                calls[name] = None
    return list(calls)


def install(unit: Path) -> None:
    """Filter the calls of this process and of all that it starts."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    number = settings(unit).get("SystemCallErrorNumber")
    refuse = ERRNO | getattr(errno, number[-1]) if number else KILL_PROCESS
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(refuse)))
    families = [getattr(socket, name) for line in settings(unit)["RestrictAddressFamilies"] for name in line.split()]
    for name in allowed(unit):
        call = library.seccomp_syscall_resolve_name(name.encode())
        if call < 0:
            continue  # of another architecture
        rules = [Compare(0, EQUAL, family, 0) for family in families] if name == "socket" else [None]
        for rule in rules:
            given = (ctypes.c_uint(1), rule) if rule is not None else (ctypes.c_uint(0),)
            code = library.seccomp_rule_add(context, ctypes.c_uint32(ALLOW), ctypes.c_int(call), *given)
            assert code == 0, f"{name}: {os.strerror(-code)}"
    assert ctypes.CDLL(None).prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
    assert library.seccomp_load(context) == 0


if __name__ == "__main__":
    install(Path(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
