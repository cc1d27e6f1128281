"""The words of one request to Slurm: what the site asks of every job, and what this allocation needs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qloom.model import QpuHold
from qloom.site import Site, Slurm
from qloom.world import Request

# What holds an allocation: it prints the job id, and reads what its driver has to say.
# - "end": it exits, and salloc ends the job as COMPLETED.
# - "gone": the job has ended; it ends salloc.
# - The end of input: the driver was killed. It cancels the job (again while the controller is down) and ends salloc.
# It lives until the job has ended, and ends salloc with SIGKILL. If it ended before, a thread of salloc could reap it
# at the news of the job's end, and salloc would wait for a child that is gone, in a busy loop for ever (salloc.c of
# 22.05: `_job_complete_handler`). Its first act is to end what would take a waiting request back (`salloc.WATCH`).
HOLD = """trap '' TERM
kill "$QLOOM_WATCH" 2>/dev/null
echo "$SLURM_JOB_ID"
read -r word
[ "$word" = end ] && exit 0
if [ "$word" != gone ]; then
    for pause_s in 1 5 15 30 60 0; do
        scancel --quiet "$SLURM_JOB_ID" && break
        sleep "$pause_s"
    done
fi
read -r _ _ _ parent _ </proc/$$/stat
[ "$parent" = "$PPID" ] && kill -KILL "$PPID"
"""
_OPTIONS = ("account", "qos", "reservation", "constraint", "network")


def common(slurm: Slurm) -> list[str]:
    """What every job of the run is asked for with."""
    words = [f"--{name}={getattr(slurm, name)}" for name in _OPTIONS if getattr(slurm, name)]
    words += [f"--time={slurm.time_limit}"] if slurm.time_limit else []
    return [*words, *slurm.arguments]


def nodes(slurm: Slurm, least: int, most: int) -> list[str]:
    """So many whole nodes; the job goes on if one of them fails."""
    count = str(least) if least == most else f"{least}-{most}"
    return [*_partition(slurm), f"--nodes={count}", "--exclusive", "--no-kill", *common(slurm)]


def core(slurm: Slurm) -> list[str]:
    """One core, for a driver that computes nothing."""
    return [*_partition(slurm), "--nodes=1", "--ntasks=1", *common(slurm)]


def _partition(slurm: Slurm) -> list[str]:
    return [f"--partition={slurm.partition}"] if slurm.partition else []


def qpu(site: Site, device: str, shares: int) -> list[str]:
    """So many shares of a QPU, and one core of the node that stands for it."""
    slurm = site.slurm
    partition = [f"--partition={slurm.quantum_partition}"] if slurm.quantum_partition else []
    asked = f"--licenses={slurm.licences}:{shares}" if slurm.licences else f"--gres={gres_of(site, device)}:{shares}"
    without_constraint = [word for word in common(slurm) if not word.startswith("--constraint=")]
    return [*partition, "--nodes=1", "--ntasks=1", asked, *without_constraint]


def gres_of(site: Site, device: str) -> str:
    """The gres that stands for a device."""
    return site.slurm.gres if len(site.qpus) == 1 else f"{site.slurm.gres}:{device}"


def components(site: Site, request: Request, shares: int, rest_s: float | None = None) -> list[list[str]]:
    """The components of a request: nodes, a QPU, or both as a het job, of which the QPU is never the leader.

    What grows an allocation is asked for only for as long as the rest of that lasts.
    """
    parts = [nodes(site.slurm, request.least_nodes, request.most_nodes)] if request.least_nodes else []
    if rest_s is not None and parts:
        parts[0].append(f"--time={max(1, math.ceil(rest_s / 60))}")
    if request.spare and parts:
        parts[0].append("--nice")  # for work that may never be needed: all others go first
    if request.device is not None and request.qpu is not QpuHold.TASK:
        parts.append(qpu(site, request.device, shares))
    return parts


def salloc(parts: Sequence[Sequence[str]], name: str, comment: str, after: Sequence[str] = ()) -> list[str]:
    """The words of a `salloc` that holds an allocation until its driver ends it or is gone.

    It starts only when the jobs that it comes `after` have ended, however they did: those of a run that fails are
    cancelled. What the leader of a het job waits for, its other components wait for too.
    """
    tags = [f"--job-name={name}", f"--comment={comment}"]
    words = ["salloc", *([f"--dependency=afterany:{':'.join(after)}"] if after else [])]
    for place, part in enumerate(parts):
        words += [*([":"] if place else []), *part, *tags]  # the last word counts
    return [*words, "sh", "-c", HOLD]
