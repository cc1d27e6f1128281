"""The output of `squeue`: jobs, components of het jobs, and lists of nodes in Slurm's short form.

This module reads columns, not JSON: they are the same from Slurm 22.05 to 26.05, and `squeue --json` of 22.05 sends
the jobs of all users, some kilobytes each, whatever the filter. It runs no command and knows no policy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from qloom.slurm.states import SlurmState, read_state

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
