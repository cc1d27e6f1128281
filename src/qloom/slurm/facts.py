"""What a cluster has: the nodes of a partition, the shares of its QPUs. Read before anything is requested.

This module refuses what Slurm would refuse or leave pending for ever; it submits nothing.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from qloom.errors import InputError
from qloom.model import QpuHold
from qloom.site import Site, Slurm
from qloom.slurm.arguments import gres_of, nodes, qpu
from qloom.slurm.commands import PROGRAMS, Answer, call_once, controller_is_down
from qloom.world import Request

FACTS_FORMAT = "%N|%R|%c|%m|%G"  # of sinfo: see `SlurmNode`
APT = "apt-get install slurm-client"
NO_CLUSTER = "log in to a cluster, set SLURM_CONF, or try: qloom testbed up"


class SlurmNode(NamedTuple):
    """A node in one of its partitions, as `sinfo -N` prints it."""

    name: str
    partition: str
    cpus: int
    memory_mb: int
    gres: str


@dataclass(frozen=True)
class ClusterFacts:
    """The nodes that a job may be given, the smallest of them, and the shares of each QPU."""

    nodes: tuple[str, ...]
    cpus: int
    memory_mb: int
    shares: dict[str, int]  # by device

    def shares_of(self, request: Request) -> int:
        """How many shares a request asks for: a whole device is all of them."""
        if request.device is None or request.qpu is QpuHold.TASK:
            return 0
        return self.shares[request.device] if request.qpu is QpuHold.WHOLE else 1

    def qpus(self, device: str | None, shares: int) -> float:
        """A number of shares as a fraction of their device."""
        return shares / self.shares[device] if device is not None and shares else 0.0


def read_facts(site: Site) -> ClusterFacts:
    """Ask Slurm; raises `InputError` for a partition, node or QPU that it does not have."""
    require_programs()
    known = read_nodes(_ask("sinfo", "-h", "-N", "-o", FACTS_FORMAT).stdout)
    partitions = list(dict.fromkeys(node.partition for node in known))
    own = site.slurm.partition or default_partition()
    wanted = [own, *([site.slurm.quantum_partition] if site.qpus and site.slurm.quantum_partition else [])]
    for partition in wanted:
        if partition not in partitions:
            hint = f"Slurm has {', '.join(partitions) or 'none'}: [slurm] partition and quantum_partition"
            raise InputError(f"Slurm has no partition {partition!r}", hint=hint)
    compute = [node for node in known if node.partition == own]
    if site.nodes > len(compute):
        raise InputError(
            f"a job may hold {site.nodes} nodes and partition {own} has {len(compute)}", hint="ask for fewer: --nodes"
        )
    quantum = [node.gres for node in known if site.slurm.quantum_partition in ("", node.partition)]
    return ClusterFacts(
        nodes=tuple(node.name for node in compute),
        cpus=min(node.cpus for node in compute),
        memory_mb=min(node.memory_mb for node in compute),
        shares={device.name: _shares(site, device.name, quantum) for device in site.qpus},
    )


def read_nodes(text: str) -> list[SlurmNode]:
    """Read the output of `sinfo -h -N -o FACTS_FORMAT`."""
    rows = [line.split("|", 4) for line in text.splitlines()]
    return [SlurmNode(name, partition, int(cpus), int(memory), gres) for name, partition, cpus, memory, gres in rows]


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
    default = read_default_partition(_ask("sinfo", "-h", "-o", "%P").stdout)
    if default is None:
        raise InputError("Slurm has no default partition", hint="name one: [slurm] partition")
    return default


def read_default_partition(text: str) -> str | None:
    """Read the output of `sinfo -h -o %P`: the default partition is marked by an asterisk."""
    return next((name.removesuffix("*") for name in text.split() if name.endswith("*")), None)


def _shares(site: Site, device: str, gres: Sequence[str]) -> int:
    """How many shares of a device there are: the most that one node has, or the number of licences."""
    if site.slurm.licences:
        licences = read_licences(_ask("scontrol", "show", "licenses", "-o").stdout)
        if site.slurm.licences not in licences:
            raise InputError(f"Slurm has no licence {site.slurm.licences!r}", hint="[slurm] licences")
        return licences[site.slurm.licences]
    name = gres_of(site, device)
    counts = [count for text in gres for count in read_gres(text, name)]
    if not counts:
        where = f"partition {site.slurm.quantum_partition}" if site.slurm.quantum_partition else "any partition"
        raise InputError(f"no node of {where} has gres/{name}", hint="[slurm] gres, quantum_partition or licences")
    return max(counts)


def read_licences(text: str) -> dict[str, int]:
    """Read the output of `scontrol show licenses -o`: how many there are of each."""
    return {name: int(total) for name, total in re.findall(r"LicenseName=(\S+) Total=(\d+)", text)}


def read_gres(text: str, name: str) -> list[int]:
    """The counts of a gres, with or without a type, in what sinfo prints (`qpu:a:8,gpu:2(S:0)`)."""
    return [int(count) for count in re.findall(rf"(?:^|,){re.escape(name)}(?::[^:,(]+)?:(\d+)", text)]


def _require_known(slurm: Slurm) -> None:
    """Refuse an unknown account or qos: without enforcement Slurm accepts any name, but accounting has a list."""
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
    """Whether the refusal is due to nodes that are down or drained, which come back; there are enough of them."""
    return "not available" in said


def _ask(*words: str) -> Answer:
    answer = call_once(*words)
    if answer.code != 0:
        hint = "scontrol ping" if controller_is_down(answer.stderr) else NO_CLUSTER
        raise InputError(f"Slurm does not answer: {answer.complaint}", hint=hint)
    return answer
