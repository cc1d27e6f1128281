"""A QPU that is away makes its node or its licences unavailable, so that hybrid jobs wait for it in the queue.

What is running goes on: draining a node and reserving licences only keep new jobs from starting. A node that somebody
else has drained is never touched. Whether Slurm lets this user do it is checked even if there is nothing to do:
a hook without the right to drain is found when the broker starts, not when a device has failed.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Sequence

from qloom.errors import InputError, QloomError
from qloom.slurm.commands import call_once, controller_is_down
from qloom.slurm.site_config import GRES

AVAILABLE = ("idle", "busy")
OURS = "qloom:"  # the beginning of our reasons
CALL_S, RETRY_S, PAUSE_S = 10.0, 25.0, 1.0
NOTHING = "qloom-permission-check"  # no node and no reservation has this name
DENIED = ("invalid user id", "permission denied", "access denied")


def set_device_state(device: str, state: str, *, node: str | None = None, licence: bool = False) -> str:
    """Make a device's node or licences available in Slurm, or not; returns what was done, in plain words."""
    available = state in AVAILABLE
    if licence:
        _require_permission("delete", f"ReservationName={NOTHING}")
        return _set_licence(device, state, available)
    nodes = [node] if node is not None else _nodes_of(device)
    _require_permission("update", f"NodeName={NOTHING}", "State=RESUME")
    return "; ".join(_set_node(one, device, state, available) for one in nodes)


def _set_node(node: str, device: str, state: str, available: bool) -> str:
    shown = _scontrol("-o", "show", "node", node)
    drained = "DRAIN" in _field(shown, "State")
    ours = _field(shown, "Reason").startswith(OURS)
    if available:
        if not drained:
            return f"{node} is in service"
        if not ours:
            return f"{node} stays drained, for another reason than {device}"
        _scontrol("update", f"NodeName={node}", "State=RESUME")
        return f"{node} is in service again"
    if drained and not ours:
        return f"{node} is drained already, for another reason than {device}"
    _scontrol("update", f"NodeName={node}", "State=DRAIN", f"Reason={OURS} {device} is {state}")
    return f"{node} is drained: {device} is {state}"


def _nodes_of(device: str) -> list[str]:
    """The nodes whose gres is this device."""
    wanted = re.compile(rf"(^|,){GRES}:{'' if device == GRES else re.escape(device) + ':'}\d")
    found = []
    for line in _scontrol("-o", "show", "node").splitlines():
        if wanted.search(_field(line, "Gres")):
            found.append(_field(line, "NodeName"))
    if not found:
        raise InputError(f"no node has the QPU {device}", hint="qloom slurm config, or --node NODE")
    return found


def _set_licence(device: str, state: str, available: bool) -> str:
    reservation = f"qloom-{device}"
    shown = _scontrol("-o", "show", "reservation").splitlines()
    held = any(_field(line, "ReservationName") == reservation for line in shown)
    if available:
        if held:
            _scontrol("delete", f"ReservationName={reservation}")
        return f"licences of {device} are free to use"
    if held:
        return f"licences of {device} are reserved already"
    total = _field(_scontrol("-o", "show", "licenses", device), "Total")
    if not total:
        raise InputError(f"there is no licence {device}", hint="qloom slurm config --licences")
    _scontrol(
        "create",
        "reservation",
        f"ReservationName={reservation}",
        f"Licenses={device}:{total}",
        "StartTime=now",
        "Duration=infinite",
        "Users=root",
        "Flags=LICENSE_ONLY,IGNORE_JOBS",
    )
    return f"licences of {device} are reserved: it is {state}"


def _field(line: str, name: str) -> str:
    """The value of a field in a line of `scontrol -o`; the reason may hold blanks."""
    end = r" \[|$" if name == "Reason" else r"\s|$"
    found = re.search(rf"(?:^|\s){name}=(.*?)(?:{end})", line)
    return found[1] if found else ""


def _require_permission(*words: str) -> None:
    """Ask for a change of something that does not exist: slurmctld looks at who asks before it looks at what for."""
    _, said = _call(*words)
    if _is_denied(said):
        raise _failure(words, said)


def _scontrol(*words: str) -> str:
    """What `scontrol` prints; raises if it fails."""
    succeeded, said = _call(*words)
    if not succeeded:
        raise _failure(words, said)
    return said


def _failure(words: Sequence[str], said: str) -> QloomError:
    if not _is_denied(said):
        return QloomError(f"scontrol {' '.join(words[:3])}: {said}")
    what, level = (
        ("reservations", "Operator") if "reservation" in " ".join(words).lower() else ("nodes", "Administrator")
    )
    user = pwd.getpwuid(os.geteuid()).pw_name
    hint = f"run it as SlurmUser or root, or: sacctmgr modify user {user} set AdminLevel={level}"
    return QloomError(f"Slurm does not let {user} change {what}: {said}", hint=hint)


def _is_denied(said: str) -> bool:
    return any(text in said.lower() for text in DENIED)


def _call(*words: str) -> tuple[bool, str]:
    """Run `scontrol`, again while slurmctld does not answer; whether it succeeded, and what it said."""
    deadline_s = time.monotonic() + RETRY_S
    while True:
        answer = call_once("scontrol", *words, timeout_s=CALL_S)
        if answer.code == 0:
            return True, answer.stdout
        if not controller_is_down(answer.stderr) or time.monotonic() + PAUSE_S > deadline_s:
            return False, (answer.stderr or answer.stdout).strip()
        time.sleep(PAUSE_S)
