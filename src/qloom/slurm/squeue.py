"""The output of `squeue`: jobs, components of het jobs, states, reasons, and lists of nodes in Slurm's short form.

The one table of states: whatever qloom reads from Slurm is understood here, and recordings of 22.05, 24.11 and 26.05
hold it to what these versions print.

This module reads columns, not JSON: they are the same from Slurm 22.05 to 26.05, and `squeue --json` of 22.05 sends
the jobs of all users, some kilobytes each, whatever the filter. It runs no command and knows no policy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SlurmState:
    """A state: whether a job in it may still get nodes (waits), has them (holds), or has ended; and plain words."""

    name: str
    stage: str  # "waits" | "holds" | "ended"
    words: str
    what_to_do: str = ""


STATES = {
    name: SlurmState(name, stage, words, what_to_do)
    for name, stage, words, what_to_do in (
        ("PENDING", "waits", "waits in the queue", ""),
        ("REQUEUED", "waits", "was put back into the queue", ""),
        ("REQUEUE_HOLD", "waits", "was put back into the queue and is held there", "scontrol release"),
        ("REQUEUE_FED", "waits", "was put back into the queue of another cluster", ""),
        ("EXPEDITING", "waits", "was put back at the front of the queue", ""),  # from 25.05 on
        ("RESV_DEL_HOLD", "waits", "is held, because its reservation was deleted", ""),
        ("SPECIAL_EXIT", "waits", "was put back into the queue with a special exit", ""),
        ("CONFIGURING", "holds", "has nodes that are being booted", ""),
        ("RUNNING", "holds", "runs", ""),
        ("RESIZING", "holds", "changes its size", ""),
        ("SIGNALING", "holds", "is being signalled", ""),
        ("SUSPENDED", "holds", "is suspended", ""),
        ("STOPPED", "holds", "is stopped and keeps its nodes", ""),
        ("STAGE_OUT", "holds", "writes its files out", ""),
        ("COMPLETING", "ended", "is ending", ""),
        ("COMPLETED", "ended", "ended by itself", ""),
        ("CANCELLED", "ended", "was cancelled by its user or an administrator", ""),
        ("PREEMPTED", "ended", "was preempted by a job of higher priority", "use a qos that is not preempted"),
        ("TIMEOUT", "ended", "reached its time limit", "ask for a longer time_limit"),
        ("DEADLINE", "ended", "reached its deadline", ""),
        ("NODE_FAIL", "ended", "lost a node that failed", ""),
        ("BOOT_FAIL", "ended", "had a node that could not be booted", ""),
        ("FAILED", "ended", "failed", ""),
        ("OUT_OF_MEMORY", "ended", "ran out of memory", "ask for more memory"),
        ("REVOKED", "ended", "was revoked, because another cluster runs it", ""),
    )
}

REASONS = {
    "None": "Slurm has not looked at it yet",
    "Resources": "it is next, and waits for nodes or a QPU that others hold",
    "Priority": "others are ahead of it in the queue",
    "Dependency": "it waits for another job to end",
    "DependencyNeverSatisfied": "the job that it waits for ended in the wrong way",
    "Licenses": "all licences are in use",
    "Reservation": "its reservation has not begun",
    "BeginTime": "its time to begin has not come",
    "JobHeldUser": "it is held by its user (scontrol release)",
    "JobHeldAdmin": "it is held by an administrator",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs to run",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows",
    "PartitionTimeLimit": "it asks for more time than the partition allows",
    "ReqNodeNotAvail": "a node that it needs is down, drained or reserved",
    "Nodes required for job are DOWN": "a node that it needs is down, drained or reserved",  # squeue's own sentence
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no node has the features that it asks for",
    "Cleaning": "its earlier run is being cleaned up",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its qos is not valid",
    "AssocMaxJobsLimit": "its account runs as many jobs as it may",
    "AssocGrpNodeLimit": "its account holds as many nodes as it may",
    "AssocGrpGRES": "its account holds as many QPUs as it may",
    "QOSMaxJobsPerUserLimit": "you run as many jobs as the qos allows",
    "QOSMaxNodePerUserLimit": "you hold as many nodes as the qos allows",
    "QOSGrpNodeLimit": "the qos holds as many nodes as it may",
    "QOSMaxGRESPerUser": "you hold as many QPUs as the qos allows",
}

WORST_FIRST = {"ended": 0, "waits": 1, "holds": 2}


def read_state(said: str | Sequence[str]) -> SlurmState:
    """Read a state as Slurm prints it: a word, `CANCELLED by 1000`, or a list of words (JSON from 23.11 on).

    Of several words the one that says most about the nodes counts: a job that is RUNNING and COMPLETING has ended.
    """
    words = said.replace("+", " ").replace(",", " ").split() if isinstance(said, str) else list(said)
    known = [STATES[word] for word in words if word in STATES]
    if not known:
        return SlurmState(str(said), "holds", f"is in a state that is not known here ({said})")
    return min(known, key=lambda state: (WORST_FIRST[state.stage], state.name == "COMPLETING"))


def most_telling(reasons: Sequence[str]) -> int:
    """The index of the reason that says most, among those of the components of a het job."""
    least_telling = ["None", "Priority", "Resources"]
    ranks = [least_telling.index(why) if why in least_telling else len(least_telling) for why in reasons]
    return ranks.index(max(ranks))


def reason_in_words(reason: str) -> str:
    """Why a job is pending, in plain words; an unknown reason in Slurm's own."""
    name = reason.partition(",")[0].strip("()")  # "ReqNodeNotAvail, UnavailableNodes:c2"
    return REASONS.get(name, f"Slurm says {reason}")


SEPARATOR = "|"
FIELDS = ("%i", "%T", "%S", "%e", "%N", "%j", "%k", "%r")  # id, state, start, end, nodes, name, comment, reason
FORMAT = SEPARATOR.join(FIELDS)
NO_NODES = ("", "(null)", "None assigned", "n/a")

_ITEM = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_RANGE = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True)
class QueuedJob:
    """One job, or one component of a het job (`12+1`), as the controller knows it."""

    id: str
    state: SlurmState
    start_s: int | None  # since the epoch, as Slurm keeps it: whole seconds
    end_s: int | None
    nodes: tuple[str, ...]
    name: str
    comment: str
    reason: str

    @property
    def leader(self) -> str:
        """The id of the het job that this is a component of (`12`), or of the job itself."""
        return self.id.partition("+")[0]


def read_jobs(text: str) -> list[QueuedJob]:
    """Read the output of `squeue -h -o FORMAT` with times as seconds since the epoch; skips all other lines."""
    return [_read_job(line) for line in text.splitlines() if line.count(SEPARATOR) >= len(FIELDS) - 1]


def _read_job(line: str) -> QueuedJob:
    id, state, start, end, nodes, rest = line.split(SEPARATOR, 5)
    named, _, reason = rest.rpartition(SEPARATOR)
    name, _, comment = named.partition(SEPARATOR)  # users may put anything into a comment
    return QueuedJob(
        id=id,
        state=read_state(state),
        start_s=_seconds(start),
        end_s=_seconds(end),
        nodes=tuple(expand_hostlist(nodes)),
        name=name,
        comment="" if comment == "(null)" else comment,
        reason=reason,
    )


def _seconds(text: str) -> int | None:
    return int(text) if text.isdigit() else None  # else N/A, NONE or Unknown


def expand_hostlist(text: str) -> list[str]:
    """The names in a list such as `c[1-3,7],gpu-a[01-02]`, in order; empty for what Slurm prints without nodes."""
    if text in NO_NODES:
        return []
    return [name for item in _ITEM.findall(text) for name in _expand_item(item)]


def _expand_item(item: str) -> list[str]:
    found = _RANGE.search(item)
    if found is None:
        return [item]
    before, after = item[: found.start()], item[found.end() :]
    numbers = [number for part in found[1].split(",") for number in _numbers(part)]
    return [f"{before}{number}{rest}" for number in numbers for rest in _expand_item(after)]


def _numbers(part: str) -> list[str]:
    """The numbers of `3`, or of `08-11` with their leading zeros."""
    first, dash, last = part.partition("-")
    return [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)] if dash else [first]
