"""The lines that give QPUs to Slurm, as a generic resource of a node or as licences."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from qloom.errors import InputError

GRES = "qpu"
PORT = 7117
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
TASK_PROLOG = "qloom-task-prolog"


@dataclass(frozen=True)
class SiteQpu:
    """A QPU, named as in the broker, its vQPUs, and the node that stands for it."""

    name: str
    shares: int
    node: str

    @property
    def gres(self) -> str:
        """What the node has: `qpu:helmi:8`; a QPU that is just called qpu needs no type."""
        return f"{GRES}:{self.shares}" if self.name == GRES else f"{GRES}:{self.name}:{self.shares}"

    @property
    def tres(self) -> str:
        """How accounting calls it."""
        return f"gres/{GRES}" if self.name == GRES else f"gres/{GRES}:{self.name}"


def parse_qpus(texts: Sequence[str]) -> list[SiteQpu]:
    """`NAME:SHARES[:NODE]`; nodes are q1, q2, ... unless they are named."""
    found = []
    for number, text in enumerate(texts, 1):
        name, shares, node = (*text.split(":"), "", "", "")[:3]
        well = WORD.fullmatch(name) and shares.isdigit() and int(shares) > 0 and text.count(":") in (1, 2)
        if not well or (node and not WORD.fullmatch(node)):
            raise InputError(f"{text!r} is not a QPU", hint="--qpu NAME:SHARES or NAME:SHARES:NODE, as helmi:8:q1")
        found.append(SiteQpu(name, int(shares), node or f"q{number}"))
    if not found:
        raise InputError("which QPUs?", hint="--qpu NAME:SHARES, repeatable")
    for what in ("name", "node"):
        values = [getattr(qpu, what) for qpu in found]
        if len(dict.fromkeys(values)) < len(values):
            hint = "a node is drained with its QPU: give each its own, or use --licences" if what == "node" else None
            raise InputError(f"two QPUs have the same {what}", hint=hint)
    return found


def site_files(
    qpus: Sequence[SiteQpu],
    *,
    broker: str | None = None,  # on the node of the first QPU, if not said
    partition: str = "quantum",
    licences: bool = False,
    etc: str = "/etc/slurm",
    munge_socket: str | None = None,  # munge's own, if not said
) -> dict[str, str]:
    """What to add to which file."""
    broker = broker or f"http://{qpus[0].node}:{PORT}"
    files = {"slurm.conf": _slurm_conf(qpus, partition, licences, etc)}
    if not licences:
        files["gres.conf"] = _gres_conf(qpus)
    files[TASK_PROLOG] = _task_prolog(qpus, broker, licences, munge_socket)
    files["broker.toml"] = _broker_toml(qpus, broker, licences, munge_socket)
    return files


def _slurm_conf(qpus: Sequence[SiteQpu], partition: str, licences: bool, etc: str) -> str:
    prolog = f"TaskProlog={etc}/{TASK_PROLOG}"
    if licences:
        offered = ",".join(f"{qpu.name}:{qpu.shares}" for qpu in qpus)
        tres = ",".join(f"license/{qpu.name}" for qpu in qpus)
        lines = [f"Licenses={offered}", f"AccountingStorageTRES={tres}", prolog]
    else:
        tres = ",".join(dict.fromkeys([f"gres/{GRES}", *(qpu.tres for qpu in qpus)]))
        lines = [
            f"GresTypes={GRES}",
            f"AccountingStorageTRES={tres}",
            prolog,
            "# a node for each QPU, drained when the QPU is away; a CPU for each share, or jobs wait for CPUs",
            *(f"NodeName={qpu.node} CPUs={qpu.shares} Gres={qpu.gres} State=UNKNOWN" for qpu in qpus),
            f"PartitionName={partition} Nodes={','.join(qpu.node for qpu in qpus)} State=UP",
        ]
    return "\n".join([*lines, ""])


def _gres_conf(qpus: Sequence[SiteQpu]) -> str:
    lines = []
    for qpu in qpus:
        kind = "" if qpu.name == GRES else f" Type={qpu.name}"
        lines.append(f"NodeName={qpu.node} Name={GRES}{kind} Count={qpu.shares}")
    return "\n".join(["AutoDetect=off", *lines, ""])


def _task_prolog(qpus: Sequence[SiteQpu], broker: str, licences: bool, munge_socket: str | None) -> str:
    lines = [
        "#!/bin/sh",
        "# Slurm runs this before each task, and sets what it exports for the task.",
        f"echo export QLOOM_BROKER={shlex.quote(broker)}",
        f"echo export QLOOM_BROKER_MUNGE={shlex.quote(munge_socket or '1')}",
    ]
    if not licences:  # only on the nodes of QPUs is slurmctld asked: a job of many tasks must not flood it
        lines += [
            'case "$SLURMD_NODENAME" in',
            *(f"{qpu.node}) echo export QLOOM_QPU={qpu.name} ;;" for qpu in qpus),
            "*) exit 0 ;;",
            "esac",
            'shares=$(scontrol -o show job "$SLURM_JOB_ID" 2>/dev/null |',
            rf"    sed -n 's/.* NodeList='\"$SLURMD_NODENAME\"' .*TRES=[^ ]*gres\/{GRES}=\([0-9]*\).*/\1/p')".replace(
                r"\"", '"'
            ),
            '[ -z "$shares" ] || echo export QLOOM_QPU_SHARES="$shares"',
        ]
    return "\n".join([*lines, ""])


def _broker_toml(qpus: Sequence[SiteQpu], broker: str, licences: bool, munge_socket: str | None) -> str:
    hook = ["qloom", "slurm", "device-state", *(["--licence"] if licences else [])]
    who = "SlurmUser, root, or a Slurm user of AdminLevel " + ("Operator" if licences else "Administrator")
    munge = f", munge_socket = {json.dumps(munge_socket)}" if munge_socket else ""
    gres = qpus[0].tres.removeprefix("gres/") if len(qpus) == 1 else GRES
    lines = [
        "# beside [[devices]] with the same names",
        f"listen = [{json.dumps(broker.removeprefix('http://'))}]",
        f"hook = {json.dumps(hook)}  # the broker runs as {who}",
        f'auth = {{methods = ["munge"], admins = ["root"]{munge}}}',  # peers are known on unix sockets only
        *([] if licences else [f"slurm = {{require_job = true, gres = {json.dumps(gres)}}}"]),
        *(f"\n[promises.{qpu.name}]\nshares = {qpu.shares}" for qpu in qpus),
    ]
    return "\n".join([*lines, ""])
