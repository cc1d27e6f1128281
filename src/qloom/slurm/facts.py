"""What Slurm has: the nodes of a partition, the shares of its QPUs. Read before anything is asked for."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qloom.errors import InputError
from qloom.model import QpuHold
from qloom.ports import Request
from qloom.site import Site, Slurm
from qloom.slurm.arguments import gres_of, nodes, qpu
from qloom.slurm.client import PROGRAMS, Answer, call_once, controller_is_down

_FORMAT = "%N|%R|%c|%m|%l|%G"  # node, partition, cpus, megabytes, the partition's longest time, gres
APT = "apt-get install slurm-client"
NO_CLUSTER = "log in to a cluster, set SLURM_CONF, or try: qloom testbed up"


@dataclass(frozen=True)
class ClusterFacts:
    """The nodes that a job may be given, the smallest of them, and the shares of each QPU."""

    nodes: tuple[str, ...]
    cpus: int
    memory_mb: int
    shares: dict[str, int]  # by device

    def shares_of(self, request: Request) -> int:
        """How many shares a request stands for: a whole device is all of them."""
        if request.device is None or request.qpu is QpuHold.TASK:
            return 0
        return self.shares[request.device] if request.qpu is QpuHold.WHOLE else 1

    def qpus(self, device: str | None, shares: int) -> float:
        """So many shares as a part of their device."""
        return shares / self.shares[device] if device is not None and shares else 0.0


def read_facts(site: Site) -> ClusterFacts:
    """Ask Slurm; raises `InputError`, in one line, for what it does not have."""
    require_programs()
    lines = [line.split("|", 5) for line in _ask("sinfo", "-h", "-N", "-o", _FORMAT).stdout.splitlines()]
    partitions = list(dict.fromkeys(line[1] for line in lines))
    own = site.slurm.partition or default_partition()
    wanted = [own, *([site.slurm.quantum_partition] if site.qpus and site.slurm.quantum_partition else [])]
    for partition in wanted:
        if partition not in partitions:
            hint = f"Slurm has {', '.join(partitions) or 'none'}: [slurm] partition and quantum_partition"
            raise InputError(f"Slurm has no partition {partition!r}", hint=hint)
    compute = [line for line in lines if line[1] == own]
    if site.nodes > len(compute):
        raise InputError(
            f"a job may hold {site.nodes} nodes and partition {own} has {len(compute)}", hint="ask for fewer: --nodes"
        )
    quantum = [line for line in lines if line[1] == site.slurm.quantum_partition or not site.slurm.quantum_partition]
    return ClusterFacts(
        tuple(line[0] for line in compute),
        min(int(line[2]) for line in compute),
        min(int(line[3]) for line in compute),
        {device.name: _shares(site, device.name, [line[5] for line in quantum]) for device in site.qpus},
    )


def check(site: Site) -> None:
    """Refuse, in one line, what Slurm would refuse or leave pending for ever; nothing is submitted."""
    facts = read_facts(site)
    _require_known(site.slurm)
    _test(nodes(site.slurm, 1, site.nodes))
    for device in site.qpus:
        _test(qpu(site, device.name, facts.shares[device.name]))


def require_programs() -> None:
    """Refuse a machine without Slurm, or an environment that points at a cluster which is gone."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise InputError(f"there is no Slurm on this machine: {', '.join(missing)} not found", hint=APT)
    named = os.environ.get("SLURM_CONF")
    if named is not None and not Path(named).is_file():
        raise InputError(f"SLURM_CONF names {named}, which is not there", hint="unset it, or: qloom testbed up")


def default_partition() -> str:
    """The partition of jobs that name none."""
    names = _ask("sinfo", "-h", "-o", "%P").stdout.split()
    default = [name.removesuffix("*") for name in names if name.endswith("*")]
    if not default:
        raise InputError("Slurm has no default partition", hint="name one: [slurm] partition")
    return default[0]


def _shares(site: Site, device: str, gres: Sequence[str]) -> int:
    """How many shares of a device there are: the most that one node has, or the number of licences."""
    if site.slurm.licences:
        said = _ask("scontrol", "show", "licenses", "-o").stdout
        found = re.search(rf"LicenseName={re.escape(site.slurm.licences)} Total=(\d+)", said)
        if found is None:
            raise InputError(f"Slurm has no licence {site.slurm.licences!r}", hint="[slurm] licences")
        return int(found[1])
    name = gres_of(site, device)
    counts = [
        int(count) for text in gres for count in re.findall(rf"(?:^|,){re.escape(name)}(?::[^:,(]+)?:(\d+)", text)
    ]
    if not counts:
        where = f"partition {site.slurm.quantum_partition}" if site.slurm.quantum_partition else "any partition"
        raise InputError(f"no node of {where} has gres/{name}", hint="[slurm] gres, quantum_partition or licences")
    return max(counts)


def _require_known(slurm: Slurm) -> None:
    """Slurm takes any name where it enforces none; with accounting it knows which there are."""
    for kind, name, column in (("account", slurm.account, "account"), ("qos", slurm.qos, "name")):
        if not name or shutil.which("sacctmgr") is None:
            continue
        known = call_once("sacctmgr", "-nP", "show", kind, name, f"format={column}")
        if known.code == 0 and name not in known.stdout.split():
            raise InputError(f"Slurm has no {kind} {name!r}", hint=f"[slurm] {kind}; sacctmgr show {kind}")


def _test(words: Sequence[str]) -> None:
    """Let Slurm judge a request without submitting it."""
    if shutil.which("sbatch") is None:
        return
    answer = call_once("sbatch", "--test-only", *words, "--wrap=true")
    if answer.code != 0 and not controller_is_down(answer.stderr) and not _is_for_now(answer.stderr):
        asked = " ".join(word for word in words if not word.startswith(("--exclusive", "--no-kill")))
        raise InputError(f"Slurm refuses {asked}: {answer.complaint}", hint="see [slurm] of the site")


def _is_for_now(said: str) -> bool:
    """Nodes that are down or drained come back; that there are enough of them was looked at before."""
    return "not available" in said


def _ask(*words: str) -> Answer:
    answer = call_once(*words)
    if answer.code != 0:
        hint = "scontrol ping" if controller_is_down(answer.stderr) else NO_CLUSTER
        raise InputError(f"Slurm does not answer: {answer.complaint}", hint=hint)
    return answer
